"""O-35: a cancel that arrives together with the result of a step is not swallowed, by the engine or by the body."""

from __future__ import annotations

import random
from typing import Any

import pytest

from durable_celery import CancelRequested, Workflow, WorkflowCancelled, current_workflow, step, workflow
from durable_celery import faults as points
from tests.pump import Pump

RUNS = 200
POINTS = [
    "claim.before", "claim.after_commit", "body.before", "body.after", "record.before", "record.after",
    "turn.before_body", "turn.before_commit", "turn.after_commit", "publish.before", "publish.after",
]  # fmt: skip

ran: list[str] = []
thrown: list[str] = []


@step
def short(number: int) -> int:
    ran.append("short")
    return number


@step
def clean_up(what: str) -> str:
    ran.append(what)
    return what


def noticed(what: str) -> None:
    if not current_workflow().is_replaying:
        thrown.append(what)


@workflow
def looping() -> Workflow[None]:
    number = 0
    while True:
        try:
            yield from short(number)
        except Exception:  # noqa: BLE001 - what the case is about
            pass
        except CancelRequested:
            noticed("cancel")
            raise
        number += 1


@workflow
def swallowing() -> Workflow[None]:
    while True:
        try:
            yield from short(1)
        except CancelRequested:
            noticed("swallowed")


@workflow
def cleaning() -> Workflow[None]:
    try:
        while True:
            try:
                yield from short(1)
            except Exception:  # noqa: BLE001 - what the case is about
                pass
    finally:
        yield from clean_up("first")
        yield from clean_up("second")


@workflow
def swallowing_once() -> Workflow[None]:
    try:
        yield from short(1)
        yield from short(2)
        yield from short(3)
    except CancelRequested:
        noticed("swallowed")
    yield from short(4)
    yield from short(5)


@pytest.fixture(autouse=True)
def _clean() -> None:
    ran.clear()
    thrown.clear()


def cancel_at(handle: Any, moment: int, seen: list[int]) -> None:
    """Cancel when a fault point is reached for the `moment`-th time; `seen`: the steps begun until then."""
    left = [moment]

    def reach(name: str) -> None:
        if name not in POINTS:
            return
        left[0] -= 1
        if left[0] == 0:
            assert handle.cancel() == "requested"
            seen.append(len(ran))

    points.set_hook(reach)


# 200 runs in four parts, each with dice of its own.
@pytest.mark.parametrize("part", range(4))
def test_o35_a_cancel_at_any_moment_ends_the_loop_within_one_step(pump: Pump, part: int) -> None:
    dice = random.Random(part)
    at_once = 0
    for _ in range(RUNS // 4):
        ran.clear()
        thrown.clear()
        begun: list[int] = []
        handle = looping.start()
        cancel_at(handle, dice.randint(1, 22), begun)
        pump.drain()
        points.set_hook(None)
        pump.finish()
        assert handle.status == "CANCELLED"
        assert len(begun) == 1
        assert len(ran) - begun[0] <= 1
        at_once += len(ran) == begun[0]
        # A run that had no turn yet has no body that could be told.
        assert thrown == ["cancel"] or (thrown == [] and handle.history() == [])
        with pytest.raises(WorkflowCancelled):
            handle.result(timeout=0)
    assert 0 < at_once <= RUNS // 4


@pytest.mark.parametrize("point", POINTS)
def test_o35_swallowed_it_is_thrown_three_times_more_and_the_body_closed(pump: Pump, point: str) -> None:
    handle = swallowing.start()
    pump.deliver(pump.queue[0])
    done: list[str] = []

    def reach(name: str) -> None:
        if name == point and not done:
            done.append(handle.cancel())

    points.set_hook(reach)
    pump.drain()
    pump.finish()
    assert done == ["requested"]
    assert thrown == ["swallowed"] * 4
    assert handle.status == "CANCELLED"
    assert len(ran) <= 2


def test_o35_swallowed_once_it_comes_again_at_the_next_yield(pump: Pump) -> None:
    handle = swallowing_once.start()
    pump.deliver(pump.queue[0])
    handle.cancel()
    pump.finish()
    assert thrown == ["swallowed"]
    assert ran == []
    assert handle.status == "CANCELLED"


@pytest.mark.parametrize("moment", range(8, 30, 2))
def test_o35_the_steps_of_finally_run_once_under_the_shield(pump: Pump, moment: int) -> None:
    handle = cleaning.start()
    pump.deliver(pump.queue[0])
    begun: list[Any] = []
    cancel_at(handle, moment, begun)
    pump.drain()
    handle.cancel("again, during the cleanup")
    pump.finish()
    assert len(begun) == 1
    assert ran[-2:] == ["first", "second"]
    assert ran.count("first") == ran.count("second") == 1
    assert len(ran) - 2 - begun[0] <= 1
    assert handle.status == "CANCELLED"


def test_o35_a_second_cancel_during_the_cleanup_does_not_interrupt_it(pump: Pump) -> None:
    handle = cleaning.start()
    pump.deliver(pump.queue[0])
    handle.cancel()
    while handle.cancel() != "requested" or not any(e.name == clean_up.name for e in handle.history()):
        pump.deliver(pump.ready()[0])
    for _ in range(3):
        handle.cancel()
    pump.finish()
    assert ran == ["first", "second"]
    assert handle.status == "CANCELLED"
