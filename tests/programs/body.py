"""The workflow that runs a random program, and what it touches outside: an effect for each step, counted by its key."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from typing import Any

from durable_celery import (
    ChildFailed,
    RetryPolicy,
    Signal,
    StepFailed,
    Workflow,
    continue_as_new,
    current_step,
    gather,
    get_handle,
    map_step,
    patched,
    poll,
    query,
    race,
    set_attributes,
    set_status,
    side_effect,
    sleep,
    spawn,
    step,
    update,
    uuid4,
    wait_until,
    workflow,
)
from durable_celery.core.commands import Command
from tests.programs.grammar import Program, Statement

QUICK = RetryPolicy(maximum_attempts=4, initial_interval=3, jitter=False)
FOREVER = timedelta(days=3000)

effects: Counter[str] = Counter()  # by what was done; a step that ran once is one

never = Signal("never")
asked = Signal("asked", int)


@step(name="programs.work", retry=QUICK)
def work(number: int) -> int:
    effects[current_step().idempotency_key] += 1
    return number * 10


@step(name="programs.flaky", retry=QUICK)
def flaky(number: int, failures: int) -> int:
    effects[current_step().idempotency_key] += 1
    if current_step().attempt <= failures:
        raise RuntimeError(f"not yet, {number}")
    return number * 10


@step(name="programs.kept", atomic=True)
def kept(number: int) -> int:
    return number * 100


@step(name="programs.refuse", retry=None)
def refuse(number: int) -> int:
    raise ValueError(f"refused {number}")


@step(name="programs.undo", retry=QUICK)
def undo(result: int | None) -> None:
    effects[f"undo {result}"] += 1


@step(name="programs.tell", retry=QUICK)
def tell(name: str, number: int) -> None:
    here = current_step()
    get_handle(here.instance_id).signal(name, number, signal_id=here.idempotency_key)


@step(name="programs.counted", retry=QUICK)
def counted(enough: int) -> int:
    return min(current_step().attempt, enough)


@workflow(name="programs.interpreted")
def interpreted(program: Program, seen: list[Any]) -> Workflow[list[Any]]:
    """Runs the first block, then the rest as new runs, then ends as the program says."""
    block, *rest = program["runs"]
    query("seen", lambda: list(seen))
    yield from run_block(block, seen)
    set_attributes(last=len(seen))
    if rest:
        return (yield from continue_as_new({**program, "runs": rest}, seen))
    return (yield from ended(program["end"], seen))


@workflow(name="programs.child")
def child(block: list[Statement], end: str) -> Workflow[list[Any]]:
    """A block and an end, as a child."""
    seen: list[Any] = []
    yield from run_block(block, seen)
    return (yield from ended(end, seen))


def ended(end: str, seen: list[Any]) -> Workflow[list[Any]]:
    if end == "fail":
        yield from refuse(99)
    if end == "cancel":
        set_status("cancel")
        yield from never.wait()
    return seen


def run_block(block: list[Statement], seen: list[Any]) -> Workflow[None]:
    for statement in block:
        kind, *parts = statement
        if kind in LABELLED:
            parts.append(f"{kind} {len(seen)}")
        seen.append([kind, (yield from RUN[kind](*parts))])


def command(statement: Statement) -> Command[Any]:
    """A statement that is one command."""
    kind, *parts = statement
    return COMMANDS[kind](*parts)


COMMANDS: dict[str, Any] = {
    "step": work,
    "retried": flaky,
    "atomic": kept,
    "sleep": sleep,
    "gather": lambda members, limit: gather(*map(command, members), limit=limit),
    "race": lambda member: race(first=command(member), never=sleep(FOREVER), unheard=never.wait()),
}


def one(kind: str) -> Any:
    def run(*parts: Any) -> Workflow[Any]:
        value = yield from COMMANDS[kind](*parts)
        return list(value) if isinstance(value, tuple) else value

    return run


def late(seconds: int) -> Workflow[str]:
    winner = yield from race(heard=never.wait(), late=sleep(seconds), never=gather(never.wait(), sleep(FOREVER)))
    return str(winner.name)


def refused(number: int) -> Workflow[Any]:
    try:
        yield from refuse(number)
    except StepFailed as error:
        return [error.matches(ValueError), error.message]
    return "not refused"


def compensated(number: int) -> Workflow[int]:
    return (yield from work(number).compensate_with(undo))


def asked_for(number: int, before: bool) -> Workflow[int]:
    if before:
        yield from tell("asked", number)
    else:
        set_status(f"signal {number} {uuid4()}")
    answer = yield from asked.wait()
    set_status("")
    return answer


def told(numbers: list[int], label: str) -> Workflow[list[int]]:
    own = Signal(label, int)
    for number in numbers:
        yield from tell(own.name, number)
    answers = []
    for _ in numbers:
        answers.append((yield from own.wait(timeout=600)))
    return answers


def handled(numbers: list[int], label: str) -> Workflow[list[int]]:
    heard: list[int] = []
    own = Signal(label, int)
    own.on(heard.append)
    for number in numbers:
        yield from tell(own.name, number)
    assert (yield from wait_until(lambda: len(heard) >= len(numbers)))
    return list(heard)


def updated(numbers: list[int], label: str) -> Workflow[list[int]]:
    taken: list[int] = []
    good = [number for number in numbers if number >= 0]

    def add(number: int) -> int:
        taken.append(number)
        return sum(taken)

    def validate(number: int) -> None:
        if number < 0:
            raise ValueError(f"{number} is below zero")

    update(label, add, validate=validate)
    set_status(f"update {label}:{numbers}")
    yield from wait_until(lambda: len(taken) >= len(good))
    set_status("")
    return list(taken)


def polled(enough: int) -> Workflow[int]:
    return (yield from poll(counted(enough), until=lambda count: count >= enough, every=5))


def mapped(numbers: list[int], limit: int | None) -> Workflow[list[int]]:
    return list((yield from map_step(work, numbers, limit=limit)))


def guarded(number: int) -> Workflow[Any]:
    drawn = side_effect(lambda: number + 1)
    if patched(f"guard {number}"):
        return [drawn, (yield from work(number))]
    return drawn


def child_of(block: list[Statement], end: str) -> Workflow[Any]:
    try:
        return (yield from child(block, end))
    except ChildFailed as error:
        return ["child failed", error.matches(ValueError)]


def spawned(statement: Statement, block: list[Statement]) -> Workflow[Any]:
    handle = yield from spawn(command(statement))
    seen: list[Any] = []
    yield from run_block(block, seen)
    again = yield from handle
    assert (yield from handle) == again
    return seen


def won(member: Statement) -> Workflow[str]:
    winner = yield from race(first=command(member), never=sleep(FOREVER), unheard=never.wait())
    return str(winner.name)


LABELLED = ("told", "handled", "updated")  # whose messages need a name of their own
RUN: dict[str, Any] = {
    **{kind: one(kind) for kind in ("step", "retried", "atomic", "sleep", "gather")},
    "race": won,
    "late": late, "refused": refused, "compensated": compensated, "asked": asked_for, "told": told,
    "handled": handled, "updated": updated, "polled": polled, "mapped": mapped, "guarded": guarded,
    "child": child_of, "spawned": spawned,
}  # fmt: skip
