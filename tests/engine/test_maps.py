"""``map_step`` over the real database: as gather, at flat memory, found again whatever is lost."""

from __future__ import annotations

from typing import Any

import pytest

from durable_celery import StepFailed, Workflow, map_step, step, workflow
from durable_celery.core import transitions as t
from tests.pump import Pump, release

RAN: list[Any] = []


@step(name="maps.double", retry=1)
def double(number: int) -> int:
    RAN.append(number)
    if number < 0:
        raise ValueError(f"no luck with {number}")
    return 2 * number


@workflow(name="maps.doubling")
def doubling(numbers: list[int], limit: int | None = None, tolerate: int = 0) -> Workflow[Any]:
    return (yield from map_step(double, numbers, limit=limit, tolerate=tolerate))


@pytest.fixture(autouse=True)
def _nothing_ran():
    RAN.clear()


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


def states(handle: Any) -> dict[str, str]:
    return {entry.position: entry.state for entry in handle.history(of="1")}
