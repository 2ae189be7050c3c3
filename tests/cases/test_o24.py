"""O-24: bodies that end without a yield, or before their first one, end like any other."""

from __future__ import annotations

from typing import Any

import pytest

from durable_celery import Workflow, WorkflowFailed, step, workflow
from tests.pump import Pump

ran: list[str] = []


class SoldOut(Exception):
    """A failure this workflow knows."""


@step
def a() -> str:
    ran.append("a")
    return "a"


@workflow
def at_once() -> Workflow[int]:
    return 5
    yield


@workflow
def sometimes(short: bool) -> Workflow[Any]:
    if short:
        return 6
    return (yield from a())


@workflow
def plain() -> int:
    return 7


@workflow
def empty() -> None:
    pass


@workflow
def buggy(plainly: bool) -> Workflow[None]:
    raise ValueError("not declared")
    yield


@workflow
def plain_buggy() -> None:
    raise ValueError("not declared")


@workflow(fails_on=(SoldOut,))
def declared() -> Workflow[None]:
    raise SoldOut("none left")
    yield


@workflow
def failing() -> Workflow[None]:
    raise WorkflowFailed("it is over")
    yield


@workflow(fails_on=SoldOut)
def plain_declared() -> None:
    raise SoldOut("none left")


@pytest.mark.parametrize(
    ("definition", "args", "value"),
    [(at_once, (), 5), (sometimes, (True,), 6), (plain, (), 7), (empty, (), None)],
)
def test_o24_a_body_that_ends_at_once_completes_with_its_value(
    pump: Pump, definition: Any, args: tuple[Any, ...], value: Any
) -> None:
    ran.clear()
    handle = definition.start(*args)
    pump.drain()
    assert handle.status == "COMPLETED"
    assert handle.result(timeout=0) == value
    assert handle.history() == []
    assert ran == []
    assert handle.waiting_for == ""


def test_o24_the_other_branch_of_it_runs_its_step(pump: Pump) -> None:
    ran.clear()
    handle = sometimes.start(False)
    pump.drain()
    assert handle.result(timeout=0) == "a"
    assert ran == ["a"]


@pytest.mark.parametrize(("definition", "args"), [(buggy, (True,)), (plain_buggy, ())])
def test_o24_an_undeclared_error_before_the_first_yield_blocks_with_it(
    pump: Pump, definition: Any, args: tuple[Any, ...]
) -> None:
    handle = definition.start(*args)
    pump.finish()
    assert handle.status == "BLOCKED"
    assert "ValueError: not declared" in handle.waiting_for
    assert "test_o24.py" in handle.waiting_for


@pytest.mark.parametrize(
    ("definition", "kind", "text"),
    [
        (declared, SoldOut, "none left"),
        (plain_declared, SoldOut, "none left"),
        (failing, WorkflowFailed, "it is over"),
    ],
)
def test_o24_a_declared_error_before_the_first_yield_fails_with_it(
    pump: Pump, definition: Any, kind: type[Exception], text: str
) -> None:
    handle = definition.start()
    pump.finish()
    assert handle.status == "FAILED"
    with pytest.raises(WorkflowFailed, match=text) as raised:
        handle.result(timeout=0)
    assert raised.value.matches(kind)
