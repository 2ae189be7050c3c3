"""What the tests of old and new code side by side share."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.engine.fleets import Fleet
    from tests.pump import Pump


@pytest.fixture
def fleets(pump: Pump) -> Fleet:
    from tests.engine.fleets import Fleet  # needs Django set up

    return Fleet(pump)


@pytest.fixture
def blocks() -> Iterator[list[str]]:
    from django_app import signals

    seen: list[str] = []

    def note(instance_id: Any, **_: Any) -> None:
        seen.append(str(instance_id))

    signals.workflow_blocked.connect(note)
    yield seen
    signals.workflow_blocked.disconnect(note)
