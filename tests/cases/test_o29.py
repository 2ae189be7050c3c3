"""O-29: the same handles are raced again and again, each wake-up takes the next to end, and nothing starts twice."""

from __future__ import annotations

import json
import random
from datetime import timedelta
from typing import Any

import pytest

from django_app.models import StepResult, WorkflowInstance
from durable_celery import Handle, Signal, Workflow, faults, race, sleep, spawn, step, workflow
from tests.pump import Pump

pytestmark = pytest.mark.django_db(transaction=True)

ran: list[str] = []
wakes: list[list[int]] = []  # what the body had seen at each time it ran, replays included
last = Signal("last")

EXPECTED = [2, 1, 0]  # the step at once, the short sleep after 1 s, the long one after 3 s


@pytest.fixture(autouse=True)
def clean() -> None:
    ran.clear()
    wakes.clear()


@step
def a() -> str:
    ran.append("a")
    return "a"


@workflow
def any_of_the_rest() -> Workflow[Any]:
    numbers = [0, 1, 2]
    handles: list[Handle[Any]] = []
    for command in (sleep(3), sleep(1), a()):
        handles.append((yield from spawn(command)))
    order: list[int] = []
    values: list[Any] = []
    while handles:
        wakes.append(list(order))
        winner = yield from race(*handles)
        handles.pop(winner.name)
        order.append(numbers.pop(winner.name))
        values.append(winner.value)
    yield from last.wait()
    return [order, values]


def rows(handle: Any) -> dict[str, tuple[str, str]]:
    return {e.position: (e.kind, e.state) for e in handle.history()}


ROWS = {
    "1": ("spawn", "SUCCEEDED"), "1.0": ("timer", "SUCCEEDED"),
    "2": ("spawn", "SUCCEEDED"), "2.0": ("timer", "SUCCEEDED"),
    "3": ("spawn", "SUCCEEDED"), "3.0": ("step", "SUCCEEDED"),
    "4": ("race", "SUCCEEDED"), "5": ("race", "SUCCEEDED"), "6": ("race", "SUCCEEDED"),
    "7": ("signal", "SUCCEEDED"),
}  # fmt: skip


def assert_as_it_should_be(handle: Any) -> None:
    assert handle.result(timeout=0) == [EXPECTED, ["a", None, None]]
    assert rows(handle) == ROWS
    assert StepResult.objects.filter(instance_id=handle.id, kind="timer").count() == 2
    assert ran == ["a"]
    winners = StepResult.objects.filter(instance_id=handle.id, kind="race").order_by("position")
    assert [json.loads(text) for text in winners.values_list("result", flat=True)] == [2, 1, 0]


def assert_as_some_faultless_run(handle: Any) -> None:
    """The step may come late, where its message was lost; the timers end in the order of their times."""
    order, values = handle.result(timeout=0)
    assert sorted(order) == [0, 1, 2]
    assert order.index(1) < order.index(0)
    assert values == ["a" if number == 2 else None for number in order]
    assert ran == ["a"]
    assert rows(handle) == ROWS


def test_o29_three_wake_ups_in_the_order_of_completion(pump: Pump) -> None:
    handle = any_of_the_rest.start()
    turns = []
    for seconds in (0, 1, 2):
        pump.advance_time(seconds)
        turns.append(WorkflowInstance.objects.get(pk=handle.id).turn)
    assert turns == [2, 3, 4], "the first turn, and one for each that ends"
    assert sorted(map(tuple, wakes)) == sorted([(), (), (), (), (2,), (2,), (2,), (2, 1), (2, 1)])
    handle.signal("last")
    pump.finish()

    assert_as_it_should_be(handle)


def test_o29_all_have_ended_before_the_body_looks(pump: Pump) -> None:
    """The turns are late: the order is that in which they ended, not that of the list."""
    handle = any_of_the_rest.start()
    pump.deliver(pump.ready()[0])
    (runs,) = [hint for hint in pump.ready() if hint.step is not None]

    def late(name: str) -> None:
        if name == "record.after":  # the step has ended now; both timers fall due before its turn is taken
            pump.now += timedelta(seconds=10)

    faults.set_hook(late)
    pump.deliver(runs)
    faults.set_hook(None)
    assert WorkflowInstance.objects.get(pk=handle.id).turn == 2
    handle.signal("last")
    pump.finish()

    assert_as_it_should_be(handle)


def test_o29_replay_gives_the_recorded_winners(pump: Pump) -> None:
    handle = any_of_the_rest.start()
    pump.advance_time(10)
    assert [len(seen) for seen in wakes][-3:] == [0, 1, 2]
    # Whatever the rows say of their times by now, the order that was taken in is what counts.
    StepResult.objects.filter(instance_id=handle.id, kind="timer").update(due_at=pump.now, finished_at=pump.now)
    before = rows(handle)
    wakes.clear()
    handle.signal("last")
    pump.finish()

    assert wakes == [[], [2], [2, 1]]
    assert {p: r for p, r in rows(handle).items() if p != "7"} == {p: r for p, r in before.items() if p != "7"}
    assert_as_it_should_be(handle)


@pytest.mark.parametrize("point", ["turn.before_commit", "turn.in_transaction", "turn.after_commit"])
@pytest.mark.parametrize("nth", [1, 2, 3, 4])
def test_o29_a_kill_at_any_turn_changes_nothing(pump: Pump, point: str, nth: int) -> None:
    pump.kill_at(point, nth)
    handle = any_of_the_rest.start()
    pump.advance_time(20)
    handle.signal("last")
    pump.finish()

    assert_as_some_faultless_run(handle)


@pytest.mark.parametrize("seed", range(5))
def test_o29_lost_and_doubled_messages_start_nothing_twice(pump: Pump, seed: int) -> None:
    dice = random.Random(seed)
    pump.fate = lambda hint: [dice.choice([0, 0.3, 0.6])] * dice.choice([0, 1, 2, 2])
    pump.choose = lambda ready: dice.randrange(len(ready))
    handle = any_of_the_rest.start()
    pump.advance_time(60)
    handle.signal("last")
    pump.finish()

    assert_as_some_faultless_run(handle)
