"""The mixed workflows. The first argument, the run, is their key; what each of them may do stands in ``scripts``."""

from __future__ import annotations

from typing import Any

from durable_celery import (
    Signal,
    Workflow,
    canvas,
    continue_as_new,
    gather,
    map_step,
    race,
    sleep,
    spawn,
    update,
    wait_until,
    workflow,
)
from tests.chaos.steps import book, charge, give_back, mapped, once, refuse, shaky, work
from tests.chaos.tasks import add, persist

numbered = Signal("chaos.numbered", int)


def by_run(run: str, *_: Any) -> str:
    return run


@workflow(key=by_run)
def sequence(run: str, count: int, seconds: float) -> Workflow[int]:
    for number in range(count):
        yield from work(run, f"step {number}", seconds)
    yield from shaky(run, "shaky", 1)
    return count


@workflow(key=by_run)
def fan(run: str, members: int) -> Workflow[int]:
    done = yield from gather(*(work(run, f"member {number}") for number in range(members)))
    yield from work(run, "joined")
    return len(done)


@workflow(key=by_run)
def mapping(run: str, members: int, limit: int) -> Workflow[int]:
    done = yield from map_step(mapped, [[run, number] for number in range(members)], limit=limit)
    yield from work(run, "joined")
    return len(list(done))


@workflow(key=by_run)
def racing(run: str, seconds: float, late: float) -> Workflow[str]:
    """A step against a timer, then a message against a timer."""
    first = yield from race(step=work(run, "runner", seconds), timer=sleep(late))
    yield from work(run, "between")
    second = yield from race(message=numbered.wait(), timer=sleep(late * 4))
    yield from work(run, "after")
    return f"{first.name} {second.name}"


@workflow(key=by_run)
def napping(run: str, naps: int, seconds: float) -> Workflow[int]:
    for number in range(naps):
        yield from work(run, f"before {number}")
        yield from sleep(seconds)
        yield from work(run, f"after {number}")
    return naps


@workflow(key=by_run)
def collecting(run: str, wanted: int, patience: float) -> Workflow[list[int]]:
    """Hears messages until there are enough, or time is up: then senders may come too late."""
    heard: list[int] = []
    numbered.on(heard.append)
    yield from work(run, "before")
    yield from wait_until(lambda: len(heard) >= wanted, timeout=patience)
    yield from work(run, "after", 0.05)
    return heard


@workflow(key=by_run)
def reading(run: str, wanted: int, late: float) -> Workflow[list[int]]:
    """Takes messages one by one, every second time in a race that its wait may lose."""
    read: list[int] = []
    while len(read) < wanted:
        if len(read) % 2:
            winner = yield from race(message=numbered.wait(), timer=sleep(late))
            if winner.name == "message":
                read.append(winner.value)
        else:
            read.append((yield from numbered.wait()))
    yield from work(run, "after")
    return read


@workflow(key=by_run)
def updating(run: str, wanted: int, patience: float) -> Workflow[list[int]]:
    taken: list[int] = []

    def take(number: int) -> int:
        taken.append(number)
        return len(taken)

    update("take", take)
    yield from work(run, "before")
    yield from wait_until(lambda: len(taken) >= wanted, timeout=patience)
    return taken


@workflow
def child(run: str, name: str, seconds: float) -> Workflow[str]:
    yield from work(run, f"{name} begins", seconds)
    return (yield from work(run, f"{name} ends"))


@workflow(key=by_run)
def family(run: str, children: int, seconds: float) -> Workflow[list[str]]:
    aside = yield from spawn(work(run, "aside", seconds))
    done = yield from gather(*(child(run, f"child {number}", seconds) for number in range(children)))
    yield from aside
    return [*done, (yield from child(run, "last", seconds))]


@workflow(key=by_run)
def purchase(run: str, end: str, seconds: float) -> Workflow[str]:
    """Takes the money, then stock; what does not end well gives both back."""
    yield from charge(run, "money", seconds).compensate_with(give_back(None, run, "money"))
    yield from charge(run, "stock", seconds).compensate_with(give_back(None, run, "stock"))
    yield from sleep(seconds * 3)
    if end == "refuse":
        yield from refuse(run)
    return (yield from work(run, "ship", seconds))


@workflow(key=by_run)
def marathon(run: str, wanted: int, heard: list[int], legs: int) -> Workflow[list[Any]]:
    """Goes on as a new run after each leg, and hears messages all the while."""
    heard = list(heard)
    numbered.on(heard.append)
    yield from work(run, f"leg {legs}", 0.02)
    known = len(heard)
    yield from wait_until(lambda: len(heard) > known or len(heard) >= wanted, timeout=0.5)
    if legs < 3 or len(heard) < wanted:
        return (yield from continue_as_new(run, wanted, heard, legs + 1))
    return [legs, heard]


@workflow(key=by_run)
def books(run: str, count: int, seconds: float) -> Workflow[int]:
    for number in range(count):
        yield from book(run, f"entry {number}", seconds)
        yield from work(run, f"told {number}")
    yield from gather(*(book(run, f"side {number}", seconds) for number in range(2)))
    return count


@workflow(key=by_run)
def legacy(run: str, seconds: float) -> Workflow[int]:
    """Existing Celery tasks: one, a chain, a group."""
    number = yield from canvas(add.s(0, run, "one", seconds))
    number = yield from canvas(add.s(number, run, "two") | persist.s(run, "three"))
    both = yield from gather(canvas(add.s(number, run, "four", seconds)), canvas(add.s(number, run, "five")))
    return max(both)


@workflow(key=by_run)
def careful(run: str, seconds: float) -> Workflow[str]:
    """Its step is lost with its process."""
    yield from work(run, "before")
    return (yield from once(run, "once", seconds))
