"""Cancel, in process: what the body sees of it and what is left behind."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from durable_celery import (
    CancelRequested,
    Signal,
    Workflow,
    WorkflowCancelled,
    WorkflowHandle,
    faults,
    gather,
    query,
    shield,
    sleep,
    steering,
    workflow,
)
from tests.engine.steered import (
    clean,  # noqa: F401
    cleaned,
    hooks,
    note,
    ran,
    retried,
)
from tests.pump import Pump

pytestmark = pytest.mark.django_db(transaction=True)
go = Signal("go", str)


@workflow
def two_steps() -> Workflow[list[str]]:
    first = yield from note("first")
    ran.append(f"saw {first}")
    return [first, (yield from note("second"))]


@workflow
def stubborn() -> Workflow[None]:
    while True:
        try:
            yield from note("again")
        except CancelRequested:
            ran.append("swallowed")


@workflow
def catches_exception() -> Workflow[None]:
    while True:
        try:
            yield from note("again")
        except Exception:
            pass


@workflow
def shielded() -> Workflow[str]:
    value = yield from shield(note("kept"))
    ran.append(f"saw {value}")
    yield from note("after")
    return value


@workflow
def side_by_side() -> Workflow[None]:
    yield from gather(note("a"), note("b"), note("c"), limit=1)


def cancel_and_drain(pump: Pump, handle: WorkflowHandle[Any]) -> None:
    steering.cancel(UUID(handle.id))
    pump.drain()


def states(handle: WorkflowHandle[Any]) -> list[tuple[str, str]]:
    return [(entry.position, entry.state) for entry in handle.history()]


def test_cancel_throws_once_runs_cleanup_once_and_then_compensates(pump: Pump) -> None:
    handle = cleaned.start()
    pump.drain()
    assert steering.cancel(UUID(handle.id), "enough") == "requested"
    assert steering.cancel(UUID(handle.id), "again") == "requested"
    pump.drain()
    assert ran == ["charge", "cleaned", "finally", "refund"]
    assert handle.status == "CANCELLED"
    with pytest.raises(WorkflowCancelled, match="enough"):
        handle.result()
    assert states(handle) == [
        ("1", "SUCCEEDED"), ("2", "CANCELLED"), ("3", "SUCCEEDED"), ("4", "SUCCEEDED"), ("1~", "SUCCEEDED")
    ]  # fmt: skip
    assert steering.cancel(UUID(handle.id)) == "CANCELLED"


@workflow
def returns() -> Workflow[str]:
    query("ran", lambda: list(ran))
    try:
        yield from sleep(3600)
    except CancelRequested:
        yield from note("cleaned")
        return "no need to raise"
    finally:
        yield from note("finally")
        yield from note("finally, on")
    return "done"


def test_a_finally_cleans_up_after_a_handler_that_returns(pump: Pump) -> None:
    handle = returns.start()
    pump.drain()
    handle.cancel("changed my mind")
    pump.finish()
    assert handle.status == "CANCELLED"
    assert ran == ["cleaned", "finally", "finally, on"]
    assert handle.query("ran") == ran


def test_cancel_before_the_first_turn_runs_nothing(pump: Pump) -> None:
    handle = cleaned.start()
    steering.cancel(UUID(handle.id))
    pump.drain()
    assert ran == []
    assert handle.status == "CANCELLED"
    assert handle.history() == []


def test_cancel_gives_up_an_unclaimed_step_whose_message_comes_later(pump: Pump) -> None:
    handle = two_steps.start()
    pump.deliver(pump.queue[0])
    steering.cancel(UUID(handle.id))
    pump.drain()
    assert ran == []
    assert handle.status == "CANCELLED"
    assert states(handle) == [("1", "CANCELLED")]


def test_cancel_while_a_step_runs_gives_the_body_its_value_first(pump: Pump) -> None:
    handle = two_steps.start()
    hooks["first"] = lambda: cancel_and_drain(pump, handle)
    pump.drain()
    assert ran == ["first", "saw first"]
    assert handle.status == "CANCELLED"
    assert states(handle) == [("1", "SUCCEEDED")]


def test_a_cancel_between_the_last_result_and_the_turn_that_ends_the_body_still_counts(pump: Pump) -> None:
    handle = last_moment.start()
    said: list[str] = []

    def cancel(point: str) -> None:
        if point == "record.after" and ran[-1:] == ["deliver"] and not said:
            pump.now += timedelta(milliseconds=1)  # later than the result: the body sees that first, and returns
            said.append(steering.cancel(UUID(handle.id)))

    faults.set_hook(cancel)
    pump.drain()
    assert said == ["requested"]
    assert handle.status == "CANCELLED"
    assert ran == ["charge", "deliver", "refund"]


@workflow
def last_moment() -> Workflow[str]:
    yield from note("charge").compensate_with(note("refund"))
    return (yield from note("deliver"))


def test_cancel_while_a_step_fails_makes_no_further_attempt(pump: Pump) -> None:
    handle = retried.start()
    hooks["flaky"] = lambda: steering.cancel(UUID(handle.id))
    pump.drain()
    pump.finish()
    assert ran == ["flaky"]
    assert handle.status == "CANCELLED"


def test_a_step_that_fails_after_the_turn_of_a_cancel_has_looked_ends_without_the_clock(pump: Pump) -> None:
    handle = retried.start()

    def cancel() -> None:
        steering.cancel(UUID(handle.id))
        pump.drain()  # its turn is taken by another worker, and waits for the step

    hooks["flaky"] = cancel
    pump.drain()
    assert (ran, handle.status) == (["flaky"], "CANCELLED")


def test_cancel_during_the_wait_for_a_retry_gives_it_up(pump: Pump) -> None:
    handle = retried.start()
    pump.drain()
    steering.cancel(UUID(handle.id))
    pump.finish()
    assert ran == ["flaky"]
    assert handle.status == "CANCELLED"


def test_a_body_that_swallows_every_cancel_gets_it_three_more_times_and_is_closed(pump: Pump) -> None:
    handle = stubborn.start()
    hooks["again"] = lambda: steering.cancel(UUID(handle.id))
    pump.drain()
    assert handle.status == "CANCELLED"
    assert ran == ["again", *["swallowed"] * 4]


def test_except_exception_does_not_swallow_a_cancel(pump: Pump) -> None:
    handle = catches_exception.start()
    hooks["again"] = lambda: steering.cancel(UUID(handle.id))
    pump.drain()
    assert ran == ["again"]
    assert handle.status == "CANCELLED"


def test_a_shielded_step_runs_though_it_was_not_claimed_and_its_value_comes(pump: Pump) -> None:
    handle = shielded.start()
    pump.deliver(pump.queue[0])
    steering.cancel(UUID(handle.id))
    pump.drain()
    assert ran == ["kept", "saw kept"]
    assert handle.status == "CANCELLED"


def test_cancel_of_a_gather_waits_for_the_claimed_member_and_starts_no_other(pump: Pump) -> None:
    handle = side_by_side.start()
    hooks["a"] = lambda: cancel_and_drain(pump, handle)
    pump.drain()
    assert ran == ["a"]
    assert handle.status == "CANCELLED"
    assert {state for position, state in states(handle) if position in ("1.1", "1.2")} == {"CANCELLED"}


def test_a_cleanup_over_its_time_is_ended(pump: Pump) -> None:
    pump.settings = pump.settings
    handle = hangs.start()
    pump.drain()
    steering.cancel(UUID(handle.id))
    pump.drain()
    assert handle.status == "WAITING"
    pump.advance_time(hours=1, seconds=5)
    pump.drain()
    assert handle.status == "CANCELLED"


@workflow
def hangs() -> Workflow[None]:
    try:
        yield from sleep(timedelta(days=1))
    finally:
        yield from go.wait()
