"""O-23: a helper without `yield from` blocks the instance with the line and the fix, and half of it is not done."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Generator
from typing import Any

import pytest

from durable_celery import Workflow, step, workflow
from tests.pump import Pump, release

ran: list[str] = []


@step
def work(what: str) -> str:
    ran.append(what)
    return what


def helper() -> Generator[Any, Any, str]:
    first = yield from work("one")
    second = yield from work("two")
    return f"{first} {second}"


@workflow
def returning_it() -> Workflow[Any]:
    yield from work("before")
    x = helper()
    return x


@workflow
def yielding_it() -> Workflow[Any]:
    yield from work("before")
    return (yield helper())


@workflow
def plain_returning_it() -> Any:
    return helper()


@workflow
def rightly() -> Workflow[str]:
    return (yield from helper())


@pytest.fixture(autouse=True)
def _clean() -> None:
    ran.clear()


def line_of(definition: Any, text: str) -> int:
    lines, first = inspect.getsourcelines(definition.body)
    return first + next(number for number, line in enumerate(lines) if text in line)


@pytest.mark.parametrize(
    ("definition", "at", "before"),
    [
        (returning_it, "helper()", ["before"]),
        (yielding_it, "helper()", ["before"]),
        (plain_returning_it, "helper()", []),
    ],
)
def test_o23_the_instance_is_blocked_with_workflow_line_and_fix(
    pump: Pump, definition: Any, at: str, before: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    handle = definition.start()
    pump.finish()
    assert handle.status == "BLOCKED"
    told = handle.waiting_for
    assert "use yield from" in told
    assert "helper" in told
    assert f"test_o23.py:{line_of(definition, at)}" in told or f"line {line_of(definition, at)}" in told
    assert definition.name.rpartition(".")[2] in told
    assert definition.name in caplog.text
    assert ran == before
    assert [entry.state for entry in handle.history()] == ["SUCCEEDED"] * len(before)


def test_o23_yield_from_runs_the_helper_and_gives_its_value(pump: Pump) -> None:
    handle = rightly.start()
    pump.finish()
    assert handle.result(timeout=0) == "one two"
    assert ran == ["one", "two"]


def test_o23_the_journal_is_kept_and_the_fixed_code_goes_on_from_it(pump: Pump) -> None:
    def wrong() -> Workflow[Any]:
        yield from work("before")
        return (yield helper())

    def right() -> Workflow[Any]:
        yield from work("before")
        return (yield from helper())

    release_of: Callable[..., Any] = release
    handle = release_of("tests.cases.test_o23.mended", wrong).start()
    pump.finish()
    assert handle.status == "BLOCKED"
    release_of("tests.cases.test_o23.mended", right)
    pump.advance_time(seconds=5)
    assert handle.result(timeout=0) == "one two"
    assert ran == ["before", "one", "two"]
