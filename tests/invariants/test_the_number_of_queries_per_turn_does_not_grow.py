"""The number of queries per turn does not grow with history, siblings or parked instances; nor does that of a tick."""

from __future__ import annotations

from typing import Any

from durable_celery import Signal, Workflow, gather, step, workflow
from tests.pump import Pump, counted

MOST = 8  # statements for each step of a sequence
never = Signal("never")


@step
def work(number: int) -> int:
    return number


@workflow
def sequence(count: int) -> Workflow[int]:
    total = 0
    for number in range(count):
        total += yield from work(number)
    return total


@workflow
def spreading(count: int) -> Workflow[int]:
    return sum((yield from gather(*(work(number) for number in range(count)))))


@workflow
def parked() -> Workflow[None]:
    yield from never.wait(timeout=10**6)


def test_the_number_of_queries_per_turn_does_not_grow_with_history(pump: Pump) -> None:
    per_step = statements_per_step(pump, 200)
    early, late = per_step[5:15], per_step[185:195]
    assert sum(late) == sum(early)
    assert max(late) == max(early)


def test_statements_per_sequential_step(pump: Pump) -> None:
    per_step = statements_per_step(pump, 30)[5:25]
    average = sum(per_step) / len(per_step)
    print(f"statements per sequential step: {average:g}")
    assert average <= MOST
    assert max(per_step) <= MOST


def test_the_number_of_queries_per_turn_does_not_grow_with_siblings(pump: Pump) -> None:
    few, many = messages_of_members(pump, 10), messages_of_members(pump, 150)
    assert max(many[1:-1]) == max(few[1:-1])  # a member that is not the last
    assert many[-1] <= few[-1] + 2  # the last, whose turn takes them all in: ids go in lists of bounded length


def test_the_number_of_queries_per_turn_does_not_grow_with_parked_instances(pump: Pump) -> None:
    alone, ticks_alone = statements_per_step(pump, 10), statements_of_an_idle_tick(pump)
    parked.start_many([()] * 300)
    pump.drain()
    among_others, ticks_among_others = statements_per_step(pump, 10), statements_of_an_idle_tick(pump)
    assert among_others == alone
    assert ticks_among_others == ticks_alone


def statements_per_step(pump: Pump, count: int) -> list[float]:
    """How many statements each message of a sequence costs: claim, result, turn and what is between."""
    handle = sequence.start(count)
    pump.deliver(pump.ready()[-1])
    counts: list[float] = []
    while pump.ready():
        steps = len(pump.ended)
        with counted() as sent:
            pump.deliver(pump.ready()[0])
        ran = max(1, len(pump.ended) - steps)
        counts += [len(sent) / ran] * ran
    assert handle.result(timeout=0) == sum(range(count))
    return counts


def messages_of_members(pump: Pump, count: int) -> list[int]:
    """How many statements each member of a fan-out costs, in order of their ends; the last one with the turn."""
    handle = spreading.start(count)
    pump.deliver(pump.ready()[-1])
    counts = []
    while pump.ready():
        with counted() as sent:
            pump.deliver(pump.ready()[0])
        counts.append(len(sent))
    assert handle.result(timeout=0) == sum(range(count))
    return counts


def statements_of_an_idle_tick(pump: Pump) -> int:
    pump.tick()
    pump.drain()
    pump.now += pump.settings.tick
    with counted() as sent:
        report: Any = pump.tick()
    assert report.errors == 0
    return len(sent)
