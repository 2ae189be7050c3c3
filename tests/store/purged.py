"""Closed trees for the tests of purging."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from uuid import UUID

import pytest

from django_app.models import (
    Mailbox,
    Marker,
    Message,
    StepAttempt,
    StepResult,
    WorkflowInstance,
    WorkflowKey,
)
from durable_celery import (
    RetryPolicy,
    Signal,
    Workflow,
    continue_as_new,
    faults,
    patched,
    step,
    workflow,
)
from tests.pump import Pump

DAY = timedelta(days=1)
TABLES = (WorkflowInstance, StepResult, StepAttempt, Message, Marker, Mailbox, WorkflowKey)
go = Signal("go")
fails = {"left": 0}


@step(name="purging.double", retry=RetryPolicy(maximum_attempts=2))
def double(number: int) -> int:
    if fails["left"]:
        fails["left"] -= 1
        raise ValueError(number)
    return number * 2


@workflow(name="purging.whole")
def whole(laps: int) -> Workflow[int]:
    """Every kind of row there is: two runs, a child, a signal, a marker, an attempt that failed."""
    patched("purging")
    yield from go.wait()
    number = yield from leaf(laps)
    if laps:
        yield from continue_as_new(laps - 1)
    return number


@workflow(name="purging.leaf")
def leaf(number: int) -> Workflow[int]:
    return (yield from double(number))


def run_whole(pump: Pump, key: str | None = "order-1") -> UUID:
    fails["left"] = 1
    handle = whole.using(key=key).start(1)
    handle.signal("go", "a")
    handle.signal("go", "b")
    pump.finish()
    assert handle.result() == 0
    return UUID(handle.id)


def left() -> dict[str, int]:
    return {model.__name__: model.objects.count() for model in TABLES}


@pytest.fixture(autouse=True)
def _no_faults_left() -> Iterator[None]:
    yield
    faults.set_hook(None)
    fails["left"] = 0
