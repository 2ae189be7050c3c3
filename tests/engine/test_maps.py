"""map_step: results, limits, tolerance, giving up, nesting and retry."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from django_app.models import WorkflowInstance
from durable_celery import (
    Signal,
    StepFailed,
    Workflow,
    gather,
    map_step,
    race,
    sleep,
    spawn,
)
from durable_celery.core import transitions as t
from tests.engine.map_steps import (
    RAN,
    _nothing_ran,  # noqa: F401
    double,
    doubling,
    states,
)
from tests.pump import Pump, counted, release


def test_results_come_in_order_as_a_tuple(pump: Pump):
    handle = doubling.start([3, 1, 2])
    pump.choose = lambda ready: len(ready) - 1
    pump.drain()
    assert handle.result(timeout=1) == (6, 2, 4)
    assert RAN == [2, 1, 3]


def test_nothing_to_do_is_done_at_once(pump: Pump):
    handle = doubling.start([])
    pump.drain()
    assert handle.result(timeout=1) == ()
    (entry,) = handle.history()
    assert (entry.kind, entry.state, entry.result) == ("map", t.SUCCEEDED, ())


def test_waits_for_all_then_raises_the_error_of_the_lowest_failed_position(pump: Pump):
    caught: list[StepFailed] = []

    def body(numbers: list[int]) -> Workflow[str]:
        try:
            yield from map_step(double, numbers)
        except StepFailed as error:
            caught.append(error)
        yield from double(50)
        return "went on"

    handle = release("maps.catching", body).start([1, -2, 3, -4])
    pump.choose = lambda ready: len(ready) - 1
    pump.drain()
    assert handle.result(timeout=1) == "went on"
    assert sorted(RAN) == [-4, -2, 1, 3, 50]
    assert len(caught) == 2  # live, and on replay
    for error in caught:
        assert error.position == "1.1"
        assert error.message == "no luck with -2"
        assert error.results == [2, None, 6, None]
        assert [e and e.message for e in error.errors] == [None, "no luck with -2", None, "no luck with -4"]
    assert str(caught[0]) == str(caught[1])
    assert caught[0].traceback == caught[1].traceback != ""


def test_tolerated_failures_stand_as_exceptions(pump: Pump):
    seen: list[Any] = []

    def body() -> Workflow[int]:
        values = yield from map_step(double, [1, -2, 3], tolerate=1)
        seen.append(values)
        return (yield from double(5))

    handle = release("maps.tolerant", body).start()
    pump.drain()
    assert handle.result(timeout=1) == 10
    for values in seen:
        assert (values[0], values[2]) == (2, 6)
        assert isinstance(values[1], StepFailed)
        assert values[1].matches(ValueError)


def test_under_a_limit_so_many_run_at_once_and_none_starts_after_a_failure(pump: Pump):
    handle = doubling.start([1, -2, 3, 4, 5], limit=2)
    pump.deliver(pump.ready()[0])
    assert sorted(states(handle).values()) == [t.HELD] * 3 + [t.SCHEDULED] * 2
    pump.choose = lambda ready: len(ready) - 1
    pump.drain()
    assert handle.status == t.FAILED
    assert RAN == [-2, 1]
    assert list(states(handle).values()) == [t.SUCCEEDED, t.FAILED, t.CANCELLED, t.CANCELLED, t.CANCELLED]


def test_under_a_limit_failures_within_the_tolerance_stop_nothing(pump: Pump):
    handle = doubling.start([1, -2, 3, -4, 5], limit=1, tolerate=1)
    pump.drain()
    assert RAN == [1, -2, 3, -4]
    assert handle.status == t.FAILED


# -- giving up ---------------------------------------------------------------------------------------------------------


def test_a_cancel_stops_at_once_what_no_worker_has_and_waits_for_the_rest(pump: Pump):
    told: list[str] = []

    def slow(number: int) -> int:
        if number == 1:
            told.append(handle.cancel("enough"))
            pump.drain()
            told.append(handle.status)
            told.append(str(sorted(states(handle).values())))
        return number

    with swapped(double, slow):
        handle = doubling.start([1, 2, 3, 4], limit=2)
        pump.drain()
    assert told == ["requested", t.WAITING, str([t.CANCELLED] * 3 + [t.RUNNING])]
    assert handle.status == t.CANCELLED
    assert states(handle) == {"1.0": t.SUCCEEDED, "1.1": t.CANCELLED, "1.2": t.CANCELLED, "1.3": t.CANCELLED}
    assert handle.history()[0].state == t.CANCELLED


def test_a_cancel_of_what_nobody_has_claimed_ends_at_once_by_one_update(pump: Pump):
    handle = doubling.start(list(range(50)))
    pump.deliver(pump.ready()[0])
    handle.cancel()
    with counted() as sent:
        pump.deliver(next(hint for hint in pump.ready() if hint.step is None))
    assert handle.status == t.CANCELLED
    assert set(states(handle).values()) == {t.CANCELLED}
    assert not [sql for sql in sent if sql.startswith("INSERT") and "stepresult" in sql]
    updates = [sql for sql in sent if sql.startswith("UPDATE") and "durable_celery_stepresult" in sql]
    assert len(updates) <= 4, updates
    pump.drain()
    assert RAN == []


def test_a_map_whose_members_are_all_claimed_gives_its_value_before_the_cancel(pump: Pump):
    got: list[Any] = []

    def body() -> Workflow[None]:
        got.append((yield from map_step(double, [1])))
        yield from double(99)

    def cancelling(number: int) -> int:
        RAN.append(number)
        handle.cancel()
        pump.drain()
        return number

    with swapped(double, cancelling):
        handle = release("maps.cancelled_late", body).start()
        pump.drain()
    assert handle.status == t.CANCELLED
    assert got[-1] == (1,)
    assert RAN == [1]


def test_a_terminated_run_gives_up_its_members(pump: Pump):
    handle = doubling.start([1, 2, 3], limit=1)
    pump.deliver(pump.ready()[0])
    handle.terminate()
    pump.finish()
    assert set(states(handle).values()) == {t.CANCELLED}
    assert RAN == []


def test_a_body_that_ends_gives_up_its_spawned_map(pump: Pump):
    def body() -> Workflow[str]:
        yield from spawn(map_step(double, [1, 2]))
        return "done"

    handle = release("maps.spawning", body).start()
    pump.drain()
    assert handle.result(timeout=1) == "done"
    assert RAN == []


# -- nesting -----------------------------------------------------------------------------------------------------------


def test_maps_in_gathers_and_gathers_wake_the_body_once(pump: Pump):
    def body() -> Workflow[Any]:
        return (yield from gather(a=map_step(double, [1, 2]), b=double(3), c=gather(map_step(double, [], limit=1))))

    handle = release("maps.gathered", body).start()
    pump.drain()
    assert handle.result(timeout=1) == {"a": (2, 4), "b": 6, "c": ((),)}
    assert WorkflowInstance.objects.get(pk=handle.id).turn == 2


def test_a_map_wins_a_race_and_another_loses_one(pump: Pump):
    never = Signal("never", int)

    def body() -> Workflow[Any]:
        won = yield from race(map_step(double, [1, 2]), never.wait(warn_after=60))
        lost = yield from race(all=map_step(double, [3, 4], limit=1), first=sleep(0))
        return won, lost.name

    handle = release("maps.racing", body).start()
    for _ in range(3):
        pump.deliver(pump.ready()[0])
    pump.queue.clear()
    pump.advance_time(1)
    won, lost = handle.result(timeout=1)
    assert (won.name, won.value) == (0, (2, 4))
    assert lost == "first"
    assert {entry.state for entry in handle.history(of="2.0")} <= {t.CANCELLED, t.SUCCEEDED}


def test_a_spawned_map_is_joined(pump: Pump):
    def body() -> Workflow[Any]:
        handle = yield from spawn(map_step(double, [1, 2]))
        one = yield from double(5)
        many = yield from handle
        return one, many

    handle = release("maps.joined", body).start()
    pump.drain()
    assert handle.result(timeout=1) == (10, (2, 4))


# -- retry() -----------------------------------------------------------------------------------------------------------


def positive(number: int) -> int:
    RAN.append(number)
    return abs(number)


@pytest.mark.parametrize("limit", [None, 1, 2])
def test_retry_takes_back_what_failed_or_never_started_and_nothing_else(pump: Pump, limit: int | None):
    handle = doubling.start([1, -2, 3, -4, 5], limit=limit)
    pump.drain()
    assert handle.status == t.FAILED
    begun = sorted(RAN)
    with swapped(double, positive):
        handle.retry()
        pump.finish()
    assert handle.result(timeout=1)[1] == 2
    assert [entry.state for entry in handle.history(of="1")] == [t.SUCCEEDED] * 5
    good = [number for number in begun if number > 0]
    assert all(RAN.count(number) == 1 for number in good)
    assert sorted(RAN) == sorted(begun + [n for n in (1, -2, 3, -4, 5) if n < 0 or n not in begun])


# -- what people see ---------------------------------------------------------------------------------------------------


@contextmanager
def swapped(of: Any, body: Any) -> Iterator[None]:
    """Another body for a step, for a while."""
    before, of.body = of.body, body
    try:
        yield
    finally:
        of.body = before
