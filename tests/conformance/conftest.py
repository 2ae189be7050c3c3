"""The fixture ``pump`` of the checklist: once in each life."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.pump import Pump


@pytest.fixture(params=["straight", "killed"])
def pump(request: Any, transactional_db: None) -> Iterator[Pump]:
    from tests.conformance import lives  # needs Django set up

    lives.ran.clear()
    with lives.LIVES[request.param]() as pump:
        yield pump
        lives.assert_every_run_replays()
