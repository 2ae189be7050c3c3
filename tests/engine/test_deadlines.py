"""An ``execution_timeout`` that runs out when it has nobody to stop any more: the body has ended, or was asked to."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from durable_celery import (
    CompleteLater,
    Signal,
    Workflow,
    WorkflowHandle,
    complete_step,
    current_step,
    race,
    runtime,
    sleep,
    step,
    workflow,
)
from tests.pump import Pump

go = Signal("deadlines.go")
tokens: list[str] = []
undone: list[Any] = []


@step
def hand_over() -> None:
    tokens.append(current_step().token)
    raise CompleteLater


@step
def undo(result: Any) -> None:
    undone.append(result)


@step
def undo_later(result: Any) -> None:
    tokens.append(current_step().token)
    raise CompleteLater


@step
def work() -> str:
    return "done"


@step(retry=None)
def breaks() -> None:
    raise ValueError("no luck")


@workflow(execution_timeout=60)
def taken_back_slowly() -> Workflow[None]:
    yield from work().compensate_with(undo)
    yield from work().compensate_with(undo_later)
    yield from breaks()


@workflow(execution_timeout=60)
def with_a_loser() -> Workflow[None]:
    yield from race(hand_over().compensate_with(undo), sleep(5))
    yield from breaks()


@workflow(execution_timeout=60)
def hangs_in_cleanup() -> Workflow[None]:
    try:
        yield from sleep(days=1)
    finally:
        yield from go.wait()


def assert_nothing_is_due(pump: Pump) -> None:
    """Enough rows that are due at each tick, and that nobody acts on, would leave no room for the others."""
    due_at = runtime.current().store.next_look()
    assert due_at is None or due_at > pump.now


def test_compensations_go_on_after_it_and_keep_no_tick_busy(pump: Pump) -> None:
    undone.clear()
    handle = taken_back_slowly.start()
    pump.drain()
    pump.now += timedelta(seconds=61)
    pump.tick()
    pump.drain()
    assert handle.status == "COMPENSATING"
    assert_nothing_is_due(pump)
    complete_step(tokens[-1])
    pump.drain()
    assert (handle.status, undone) == ("FAILED", ["done"])


def test_a_step_that_ends_after_it_is_compensated(pump: Pump) -> None:
    undone.clear()
    handle = with_a_loser.start()
    pump.advance_time(10)
    assert handle.status == "COMPENSATING"
    pump.now += timedelta(seconds=61)
    pump.tick()
    pump.drain()
    assert_nothing_is_due(pump)
    complete_step(tokens[-1], "late")
    pump.queue.clear()  # whoever looks now and then finds it
    pump.advance_time(60)
    assert (handle.status, undone) == ("FAILED", ["late"])


def test_compensations_start_though_it_comes_before_the_lost_hint_is_noticed(pump: Pump) -> None:
    undone.clear()
    handle = taken_back_slowly.start()
    pump.kill_at("turn.after_commit", 4)  # the turn in which the body ended
    pump.drain()
    assert (handle.status, handle.history()[-1].kind) == ("COMPENSATING", "step")
    pump.queue.clear()
    pump.now += timedelta(seconds=61)
    pump.tick()
    pump.advance_time(60)
    complete_step(tokens[-1])
    pump.drain()
    assert (handle.status, undone) == ("FAILED", ["done"])


def test_a_cleanup_that_hangs_is_ended_by_its_own_time_out(pump: Pump) -> None:
    handle: WorkflowHandle[None] = hangs_in_cleanup.start()
    pump.drain()
    handle.cancel("enough")
    pump.drain()
    pump.now += timedelta(seconds=61)
    pump.tick()
    pump.drain()
    assert handle.status == "WAITING"
    assert_nothing_is_due(pump)
    pump.now += timedelta(hours=1)
    pump.tick()
    pump.drain()
    assert handle.status == "CANCELLED"
