"""Children under lost, doubled and reordered hints, and where processes die."""

from __future__ import annotations

from random import Random

import pytest

from django_app.models import WorkflowInstance
from durable_celery import (
    Workflow,
    gather,
    workflow,
)
from tests.engine.children import (
    doubling,
    fire_and_forget,
    go,
    many,
    nothing_noted,  # noqa: F401
    passing_on_again,
    waiting,
)
from tests.pump import Hint, Pump


@pytest.mark.parametrize("seed", range(12))
def test_hints_may_be_lost_doubled_and_reordered(pump: Pump, seed: int) -> None:
    dice = Random(seed)
    pump.fate = lambda hint: dice.choice([(), (0.0,), (0.0, 0.5), (3.0,)])
    pump.choose = lambda ready: dice.randrange(len(ready))
    handle = many.start(5)
    deep = passing_on_again.start(3)
    pump.finish()
    assert handle.result(timeout=0) == [0, 2, 4, 6, 8]
    assert deep.status == "FAILED"
    assert WorkflowInstance.objects.filter(parent_id=handle.id).count() == 5


@pytest.mark.parametrize(
    "point", ["turn.children_in_transaction", "turn.in_transaction", "turn.after_commit", "publish.before"]
)
@pytest.mark.parametrize("nth", [1, 2, 3])
def test_a_process_may_die_anywhere(pump: Pump, point: str, nth: int) -> None:
    pump.kill_at(point, nth)
    handle = many.start(3)
    pump.finish()
    assert handle.result(timeout=0) == [0, 2, 4]
    assert WorkflowInstance.objects.filter(parent_id=handle.id).count() == 3


LAST = ["turn.children_in_transaction", "turn.in_transaction", "turn.after_commit", "children.before_wake"]


@pytest.mark.parametrize("point", LAST)
def test_a_process_may_die_where_the_last_turn_starts_a_child_that_lives_on(pump: Pump, point: str) -> None:
    pump.kill_at(point)
    handle = fire_and_forget.start("returns", "abandon")
    pump.finish()
    assert not pump._kills  # it has died there
    assert handle.result(timeout=0) == "returns"
    [child] = WorkflowInstance.objects.filter(parent_id=handle.id)
    assert (child.state, child.result) == ("COMPLETED", "42")


def test_a_child_of_the_last_turn_starts_though_its_hint_is_lost(pump: Pump) -> None:
    lost: list[Hint] = []

    def fate(hint: Hint) -> tuple[float, ...]:
        if hint.step is None and str(hint.instance) != handle.id and not lost:
            lost.append(hint)
            return ()
        return (0.0,)

    handle = fire_and_forget.start("returns", "abandon")
    pump.fate = fate
    pump.finish()
    [child] = WorkflowInstance.objects.filter(parent_id=handle.id)
    assert [hint.instance for hint in lost] == [child.pk]
    assert (handle.status, child.state, child.result) == ("COMPLETED", "COMPLETED", "42")


def test_a_child_of_the_last_turn_whose_key_is_taken_leaves_the_other_alone(pump: Pump) -> None:
    first = doubling.using(key="k", start_delay=60).start(1)
    handle = fire_and_forget.start("returns", "abandon", "k")
    pump.drain()
    assert handle.status == "COMPLETED"
    assert not WorkflowInstance.objects.filter(parent_id=handle.id).exists()
    pump.finish()
    assert first.result(timeout=0) == 2


def test_without_hints_the_clock_does_it_with_few_turns(pump: Pump) -> None:
    handle = many.start(10)
    pump.drain()
    waiting_ones = slow_many.start(10)
    pump.drain()
    children = list(WorkflowInstance.objects.filter(parent_id=waiting_ones.id).order_by("parent_position"))
    for child in children:
        go.send(child, "on")
        pump.drain()
        pump.advance_time(10)
    assert waiting_ones.result(timeout=0) == ["on"] * 10
    assert WorkflowInstance.objects.get(pk=waiting_ones.id).turn == 2
    assert handle.status == "COMPLETED"


@workflow(name="children.slow_many")
def slow_many(count: int) -> Workflow[list[str]]:
    return list((yield from gather(*[waiting(str(number)) for number in range(count)])))
