"""Replaying a finished journal appends nothing, and gives the same outcome."""

from __future__ import annotations

import uuid
from typing import Any
from uuid import UUID

import pytest

from django_app.models import Marker, Message, StepAttempt, StepResult, WorkflowInstance
from durable_celery import (
    RetryPolicy,
    Signal,
    SignalTimeout,
    StepFailed,
    Workflow,
    calls,
    codec,
    current_step,
    gather,
    now,
    random,
    runtime,
    set_status,
    side_effect,
    sleep,
    step,
    uuid4,
    workflow,
)
from durable_celery.core.decision import Decision
from durable_celery.core.replay import replay
from durable_celery.engine import turns
from durable_celery.registry import registry
from tests.pump import Pump

go = Signal("go", int)
effects: list[str] = []


@step(retry=RetryPolicy(initial_interval=1, maximum_attempts=2, jitter=False))
def work(what: str, failures: int = 0) -> str:
    if current_step().attempt <= failures:
        raise RuntimeError(f"{what} failed")
    return what


@step
def undo(result: str | None) -> None:
    pass


def effect() -> str:
    effects.append("once")
    return str(uuid.uuid4())


@workflow
def everything() -> Workflow[list[Any]]:
    """One of each kind of command and helper."""
    seen: list[Any] = [now(), uuid4(), random().random(), side_effect(effect)]
    seen.append((yield from work("first", 1)))
    seen.append(
        (yield from gather(work("a"), work("b"), gather(work("c"), work("d"), limit=1), return_exceptions=True))
    )
    yield from sleep(5)
    seen.append((yield from go.wait()))
    try:
        yield from go.wait(timeout=3)
    except SignalTimeout:
        seen.append("timed out")
    try:
        yield from work("hopeless", 2)
    except StepFailed as error:
        seen.append(error.message)
    set_status("at the end")
    return [*seen, now(), uuid4()]


@workflow
def failing() -> Workflow[None]:
    yield from work("booked").compensate_with(undo)
    yield from work("hopeless", 2)


@workflow
def at_once() -> int:
    return 7


def finished(pump: Pump, definition: Any) -> Any:
    handle = definition.start()
    if definition is everything:
        go.send(handle, 1)
    handle.signal("unheard", "kept")
    pump.finish()
    return handle


def rows() -> list[Any]:
    models = (WorkflowInstance, StepResult, StepAttempt, Marker, Message)
    return [list(model.objects.order_by("pk").values()) for model in models]


def replayed(handle: Any) -> Decision:
    loaded = runtime.current().store.load(UUID(handle.id))
    assert loaded is not None
    instance = loaded.instance
    definition = registry.workflow(instance.name, instance.version)
    args, kwargs = calls.decode_call(instance.args)
    return replay(
        definition.body, args, kwargs, loaded.journal, turn=instance.turn + 1, now=runtime.current().clock.now(),
        started_at=instance.started_at, decode=codec.decode, encode=lambda value, root: codec.encode(value, root=root),
        fails_on=definition.options.fails_on, recorded_only=True,
    )  # fmt: skip


@pytest.mark.parametrize("definition", [everything, failing, at_once])
def test_replaying_a_finished_journal_appends_nothing(pump: Pump, definition: Any) -> None:
    effects.clear()
    handle = finished(pump, definition)
    state = "FAILED" if definition is failing else "COMPLETED"
    assert handle.status == state
    once, before = list(effects), rows()

    decision = replayed(handle)
    assert decision.state == state
    appended = (decision.openings, decision.closings, decision.withdrawn)
    assert not any(appended), appended
    taken = (decision.markers, decision.taken_entries, decision.taken_messages)
    assert not any(taken), taken
    if state == "COMPLETED":
        assert decision.value == handle.result(timeout=0)
    assert effects == once

    for _ in range(3):
        turns.advance(UUID(handle.id))
        pump.advance_time(seconds=30)
    assert rows() == before
    assert effects == once


def test_a_turn_that_finds_nothing_new_appends_nothing_either(pump: Pump) -> None:
    handle = everything.start()
    pump.advance_time(seconds=10)
    assert handle.status == "WAITING"
    before = rows()
    for _ in range(3):
        turns.advance(UUID(handle.id))
        pump.advance_time(seconds=30)
    assert rows() == before
