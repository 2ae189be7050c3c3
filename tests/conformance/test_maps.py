from __future__ import annotations

from typing import Any

import pytest

from durable_celery import StepFailed, WorkflowFailed, gather, map_step, sleep, step
from tests.conformance.lives import ran, run, start
from tests.project.testapp.models import Effect
from tests.pump import Pump

running: set[int] = set()
most: list[int] = []
pumps: list[Pump] = []


@step(name="checklist.double", retry=None)
def double(number: int) -> int:
    ran.append(number)
    if number < 0:
        raise ValueError(f"no luck with {number}")
    return 2 * number


@step(name="checklist.map_open", retry=None)
def count_open(number: int) -> int:
    running.add(number)
    most.append(len(running))
    pumps[0].drain()
    running.discard(number)
    return number


@pytest.fixture(autouse=True)
def _nothing_runs(pump: Pump) -> None:
    running.clear()
    most.clear()
    pumps[:] = [pump]


def mapped(items: list[int], limit: int | None = None, tolerate: int = 0) -> Any:
    return (yield from map_step(double, items, limit, tolerate=tolerate))


def test_every_item_succeeds_and_results_stand_in_order(pump: Pump) -> None:
    pump.choose = lambda ready: len(ready) - 1
    assert run(pump, mapped, [3, 1, 2]) == (6, 2, 4)
    assert ran == [2, 1, 3]


def test_no_items_give_an_empty_tuple(pump: Pump) -> None:
    assert run(pump, mapped, []) == ()


def test_items_of_a_generator(pump: Pump) -> None:
    def body() -> Any:
        return (yield from map_step(double, (n for n in range(3))))

    assert run(pump, body) == (0, 2, 4)


def test_rows_of_a_queryset_come_as_primary_keys(pump: Pump) -> None:
    keys = [Effect.objects.create(run=f"run-{n}", what=f"{n}").pk for n in range(3)]

    def body() -> Any:
        return (yield from map_step(double, Effect.objects.all()))

    assert run(pump, body) == tuple(2 * key for key in keys)


def test_the_error_of_the_lowest_failed_item_is_raised_after_all_have_ended(pump: Pump) -> None:
    def body() -> Any:
        try:
            yield from map_step(double, [1, -2, 3, -4])
        except StepFailed as error:
            return error.position, error.message, error.results, [e and e.message for e in error.errors]

    assert run(pump, body) == (
        "1.1", "no luck with -2", [2, None, 6, None], [None, "no luck with -2", None, "no luck with -4"],
    )  # fmt: skip


def test_up_to_so_many_failures_are_tolerated(pump: Pump) -> None:
    def body() -> Any:
        values = yield from map_step(double, [-1, 2, -3], tolerate=2)
        return [getattr(value, "message", value) for value in values]

    assert run(pump, body) == ["no luck with -1", 4, "no luck with -3"]


def test_one_failure_more_than_tolerated_is_raised(pump: Pump) -> None:
    with pytest.raises(WorkflowFailed, match="no luck with -1"):
        run(pump, mapped, [-1, 2, -3], None, 1)


def test_a_limit_is_respected(pump: Pump) -> None:
    def body() -> Any:
        return (yield from map_step(count_open, range(6), limit=2))

    assert run(pump, body) == (0, 1, 2, 3, 4, 5)
    assert max(most) == 2


def test_under_a_limit_no_item_starts_after_a_failure(pump: Pump) -> None:
    with pytest.raises(WorkflowFailed):
        run(pump, mapped, [-1, 2, 3], 1)
    assert ran == [-1]


def test_results_are_the_same_after_a_wait_and_a_replay(pump: Pump) -> None:
    def body() -> Any:
        values = yield from map_step(double, [1, 2, 3])
        yield from sleep(60)
        return values, (yield from map_step(double, values))

    assert run(pump, body) == ((2, 4, 6), (4, 8, 12))


def test_a_map_beside_others(pump: Pump) -> None:
    def body() -> Any:
        return (yield from gather(numbers=map_step(double, [1, 2]), pause=sleep(5)))

    assert run(pump, body) == {"numbers": (2, 4), "pause": None}


def test_a_map_is_one_entry_of_the_history_whose_members_are_asked_for(pump: Pump) -> None:
    handle = start(mapped, [1, 2])
    pump.finish()
    assert [(e.position, e.kind, e.state, e.result) for e in handle.history()] == [("1", "map", "SUCCEEDED", (2, 4))]
    assert [(e.position, e.result) for e in handle.history(of="1")] == [("1.0", 2), ("1.1", 4)]


def test_an_item_that_cannot_be_kept_is_named_by_its_index(pump: Pump) -> None:
    def body() -> Any:
        yield from map_step(double, [1, object()])

    handle = start(body)
    pump.drain()
    assert handle.status == "BLOCKED"
    assert "[1]" in handle.waiting_for
