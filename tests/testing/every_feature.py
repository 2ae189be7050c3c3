"""One workflow that uses every feature, and what the outside does to it."""

from __future__ import annotations

from collections import Counter
from typing import Any

from celery import shared_task

from durable_celery import (
    CancelRequested,
    CompleteLater,
    NonRetryable,
    RetryPolicy,
    Saga,
    Signal,
    StepFailed,
    Workflow,
    canvas,
    continue_as_new,
    current_step,
    deprecate_patch,
    gather,
    get_handle,
    get_version,
    map_step,
    now,
    patched,
    poll,
    query,
    race,
    random,
    set_attributes,
    set_status,
    shield,
    side_effect,
    sleep,
    spawn,
    step,
    update,
    uuid4,
    wait_until,
    workflow,
)
from durable_celery.testing import Harness
from tests.project.testapp.models import Effect

QUICK = RetryPolicy(maximum_attempts=5, initial_interval=1)

go = Signal("every.go", str)
note = Signal("every.note", str)


@step(name="every.plain", retry=QUICK)
def plain(what: str) -> str:
    return what


@step(name="every.keep", atomic=True, retry=QUICK)
def keep(what: str) -> str:
    Effect.objects.create(run="every", what=what)
    return what


@step(name="every.unlucky", retry=QUICK)
def unlucky() -> str:
    if current_step().attempt == 1:
        raise ConnectionError("the first time it fails")
    return "lucky"


@step(name="every.lose", retry=QUICK)
def lose() -> None:
    raise NonRetryable("for good")


@step(name="every.progress", retry=QUICK)
def progress() -> int:
    return min(current_step().attempt, 2)


@step(name="every.hand_over", retry=QUICK)
def hand_over() -> str:
    raise CompleteLater


@shared_task(name="every.double")
def double(number: int) -> int:
    return 2 * number


@workflow(name="every.child")
def child(number: int) -> Workflow[int]:
    yield from keep(f"child {number}")
    yield from sleep(2)
    return 2 * number


@workflow(name="every.feature")
def every_feature(second: bool = False) -> Workflow[list[Any]]:
    """Continues as new half way, is cancelled in the end, cleans up and compensates."""
    return (yield from (_second() if second else _first()))


def _first() -> Workflow[list[Any]]:
    notes: list[str] = []
    note.on(notes.append)
    query("notes", lambda: notes)
    update("add", notes.append, validate=lambda what: bool(what))
    set_status("first")
    set_attributes(half=1)
    yield from plain("first")
    yield from keep(f"{uuid4()} {random().random()} {side_effect(lambda: 7)} {now().year}")
    yield from _together()
    yield from _waiting(notes)
    yield from _changed()
    return (yield from continue_as_new(second=True))


def _together() -> Workflow[None]:
    doubled = yield from canvas(double.s(2) | double.s())
    a, b, c = yield from gather(keep("a"), plain("b"), keep("c"), limit=2)
    named = yield from gather(x=unlucky(), y=child(3), z=sleep(3))
    handle = yield from spawn(keep("spawned"))
    winner = yield from race(late=sleep(3600), quick=plain("quick"))
    spawned = yield from handle
    mapped = yield from map_step(keep, ["m1", "m2", "m3"], limit=2)
    yield from keep(f"{doubled} {a} {b} {c} {sorted(named.items())} {winner.name} {spawned} {mapped}")


def _waiting(notes: list[str]) -> Workflow[None]:
    by = yield from go.wait(timeout=3600)
    late = yield from go.wait(timeout=5, default="nobody")
    enough = yield from wait_until(lambda: len(notes) >= 2, timeout=3600)
    polled = yield from poll(progress(), until=lambda reached: reached >= 2, every=10)
    handed = yield from hand_over()
    yield from keep(f"{by} {late} {enough} {sorted(notes)} {polled} {handed}")


def _changed() -> Workflow[None]:
    if patched("every.patch"):
        yield from keep(f"patched {get_version('every.version', 1, 2)}")
    deprecate_patch("every.old_patch")
    saga = Saga()
    saga.add(keep("undone by the saga"))
    try:
        yield from lose()
    except StepFailed:
        yield from saga.compensate()


def _second() -> Workflow[list[Any]]:
    yield from keep("second").compensate_with(keep("second undone"))
    try:
        set_status("to be cancelled")
        yield from sleep(days=1)
    except CancelRequested:
        yield from shield(keep("cleaned up"))
        raise
    return []


def outside(durable: Harness) -> Any:
    """Signals, an update, an end of a step from outside, a query, a cancel: each when its time has come."""

    def during(run: Any) -> None:
        handle, waiting = get_handle(run.id), run.waiting_for
        external = [entry.position for entry in handle.history() if entry.state == "EXTERNAL"]
        if "signal 'every.go'" in waiting:
            durable.signal(run, go, "ann", signal_id="go")
        if "condition" in waiting:
            durable.signal(run, note, "by signal", signal_id="note")
            durable.update(run, "add", "by update", update_id="add")
            assert sorted(durable.query(run, "notes"))[:1] == ["by signal"]
        if external:
            handle.complete_step(external[0], "handed back")
        if waiting.startswith("sleep at 2,"):
            handle.cancel("enough")

    return during


def effects() -> list[tuple[str, int]]:
    return sorted(Counter(Effect.objects.values_list("what", flat=True)).items())
