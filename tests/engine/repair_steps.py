"""What the tests of skip, retry_step and fork work on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from durable_celery import (
    CompleteLater,
    RetryPolicy,
    Signal,
    Workflow,
    step,
)
from tests.pump import release

ran: list[str] = []
broken: set[str] = set()
meanwhile: dict[str, Callable[[], Any]] = {}
go = Signal("repair.go")


@step(name="repair.do", retry=None)
def do(what: str) -> str:
    ran.append(what)
    if what in meanwhile:
        meanwhile.pop(what)()
    if what in broken:
        raise ValueError(f"{what} is broken")
    return what.upper()


@step(name="repair.other", retry=None)
def other(what: str) -> str:
    ran.append(f"other {what}")
    return what.title()


@step(name="repair.again", retry=RetryPolicy(initial_interval=3600, jitter=False))
def again(what: str) -> str:
    ran.append(what)
    if what in broken:
        raise ValueError(f"{what} is broken")
    return what.upper()


@step(name="repair.outside")
def outside() -> str:
    raise CompleteLater


@step(name="repair.undo")
def undo(result: Any) -> None:
    ran.append(f"undo {result}")


@pytest.fixture(autouse=True)
def clean() -> Iterator[None]:
    ran.clear()
    broken.clear()
    meanwhile.clear()
    yield
    meanwhile.clear()


def shown(handle: Any) -> list[str]:
    return [
        f"{entry.position} {entry.kind} {entry.name.rpartition('.')[2]} {entry.state} {entry.result!r}"
        for entry in handle.history()
    ]


def states(handle: Any) -> dict[str, str]:
    return {entry.position: entry.state for entry in handle.history()}


def version(body: Callable[..., Any]) -> Any:
    """The body as the newest release of one workflow."""
    body.__module__ = __name__  # whichever file holds it: two modules cannot have one name
    return release("repair.workflow", body)


def three() -> Workflow[Any]:
    first = yield from do("a")
    second = yield from do("b")
    return first, second, (yield from do("c"))
