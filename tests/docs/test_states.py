"""The pages of what can be seen of instances: their states, and what finds and tells them in code."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterator
from types import ModuleType

import pytest
from django.dispatch import Signal

from django_app import signals
from django_app.models.querysets import InstanceQuerySet
from durable_celery.core import transitions
from durable_celery.registry import registry
from durable_celery.testing import Harness
from tests.docs.pages import ROOT, Page

STATES = Page(path=ROOT / "docs" / "states.md")
OBSERVING = Page(path=ROOT / "docs" / "observing.md")


def rows(text: str) -> dict[str, list[str]]:
    """The cells of a table by its first one, without its marks."""
    lines = [line.strip("|").split("|") for line in text.splitlines() if line.startswith("| `")]
    return {first.strip(" `").partition("(")[0]: [cell.strip() for cell in rest] for first, *rest in lines}


@pytest.mark.parametrize(
    ("heading", "table"), [("Of an instance", transitions.INSTANCE), ("Of a step", transitions.STEP)]
)
def test_the_states_of_the_page_are_those_of_the_code(heading: str, table: dict[str, tuple[str, ...]]) -> None:
    shown = {state: set(re.findall(r"\w+", becomes)) for state, (_, becomes) in rows(STATES.sections[heading]).items()}
    assert shown == {state: set(targets) for state, targets in table.items()}
    assert "`PAUSED`" in STATES.sections["Of an instance"]


def test_every_queryset_is_on_the_page() -> None:
    own = {name for name, value in vars(InstanceQuerySet).items() if inspect.isfunction(value) and name[0] != "_"}
    assert {name.lstrip(".") for name in rows(OBSERVING.sections["Querysets"])} == own


def test_every_signal_is_on_the_page() -> None:
    own = {name for name, value in vars(signals).items() if isinstance(value, Signal)}
    assert set(rows(OBSERVING.sections["Signals of Django"])) == own


@pytest.fixture
def module() -> Iterator[ModuleType]:
    """The code of the page; what it registers and connects is gone after the test."""
    known = dict(registry._workflows)
    module = OBSERVING.load()
    yield module
    signals.workflow_finished.disconnect(module.note, sender=module.WorkflowInstance)
    registry._workflows.clear()
    registry._workflows.update(known)
    sys.modules.pop(module.__name__)


@pytest.mark.django_db
@pytest.mark.parametrize("name", OBSERVING.tests)
def test_the_examples_of_the_page_run(name: str, module: ModuleType, durable: Harness) -> None:
    getattr(module, name)(durable)
