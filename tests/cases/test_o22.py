"""O-22: after a failed step the `except` block may yield as often as it likes, and so may `finally`."""

from __future__ import annotations

from typing import Any

import pytest

from durable_celery import StepFailed, Workflow, step, workflow
from tests.pump import Pump

ran: list[str] = []


@step(retry=None)
def boom() -> None:
    ran.append("boom")
    raise RuntimeError("boom")


@step
def c1() -> int:
    ran.append("c1")
    return 1


@step
def c2(x: int) -> int:
    ran.append("c2")
    return x + 1


@step
def last() -> None:
    ran.append("last")


@workflow
def recovering() -> Workflow[int]:
    try:
        yield from boom()
    except StepFailed as error:
        if not error.matches(RuntimeError):
            raise
        x = yield from c1()
        y = yield from c2(x)
    return y


@workflow
def recovering_twice() -> Workflow[tuple[int, str]]:
    seen = ""
    try:
        try:
            yield from boom()
        finally:
            yield from c1()
    except StepFailed:
        try:
            yield from boom()
        except StepFailed as error:
            yield from c2(1)
            seen = error.message
        finally:
            yield from last()
    return 2, seen


@pytest.fixture(autouse=True)
def _clean() -> None:
    ran.clear()


def states(handle: Any) -> list[tuple[str, str, str]]:
    return [(entry.position, entry.name.rpartition(".")[2], entry.state) for entry in handle.history()]


def test_o22_both_steps_of_the_except_block_run_once_and_the_value_comes_back(pump: Pump) -> None:
    handle = recovering.start()
    pump.finish()
    assert handle.status == "COMPLETED"
    assert handle.result(timeout=0) == 2
    assert ran == ["boom", "c1", "c2"]
    assert states(handle) == [("1", "boom", "FAILED"), ("2", "c1", "SUCCEEDED"), ("3", "c2", "SUCCEEDED")]


@pytest.mark.parametrize("point", ["record.after", "turn.before_commit", "turn.in_transaction", "turn.after_commit"])
@pytest.mark.parametrize("nth", [2, 3, 4])
def test_o22_a_worker_that_dies_between_them_changes_nothing(pump: Pump, point: str, nth: int) -> None:
    handle = recovering.start()
    pump.kill_at(point, nth)
    pump.finish()
    assert handle.result(timeout=0) == 2
    assert ran == ["boom", "c1", "c2"]
    assert [state for _, _, state in states(handle)] == ["FAILED", "SUCCEEDED", "SUCCEEDED"]


def test_o22_each_turn_is_driven_by_a_fresh_generator(pump: Pump) -> None:
    handle = recovering.start()
    while pump.ready():
        pump.deliver(pump.ready()[0])
        pump.advance(handle._row().id)  # one more turn than there is news for
        pump.fate = lambda hint: (0.0,) if hint.step is not None else ()
    pump.fate = lambda hint: (0.0,)
    pump.finish()
    assert handle.result(timeout=0) == 2
    assert ran == ["boom", "c1", "c2"]


def test_o22_yields_in_finally_and_in_nested_except_blocks_keep_their_places(pump: Pump) -> None:
    handle = recovering_twice.start()
    pump.finish()
    assert handle.result(timeout=0) == (2, "boom")
    assert ran == ["boom", "c1", "boom", "c2", "last"]
    assert [position for position, _, _ in states(handle)] == ["1", "2", "3", "4", "5"]
