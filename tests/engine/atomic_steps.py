"""What the tests of atomic steps share."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import OperationalError, connection

from django_app.models import StepResult
from durable_celery import (
    RetryPolicy,
    StepFailed,
    Workflow,
    current_step,
    gather,
    step,
    workflow,
)
from durable_celery.steps import Step
from tests.project.testapp.models import Effect

QUICK = RetryPolicy(initial_interval=0.1, jitter=False, maximum_attempts=3)
seen: list[Any] = []


@pytest.fixture(autouse=True)
def nothing_seen() -> None:
    seen.clear()


def effects() -> list[str]:
    return list(Effect.objects.order_by("pk").values_list("what", flat=True))


def row(name: str) -> StepResult:
    found: StepResult = StepResult.objects.get(name=name)
    return found


@step(name="atomic.book", atomic=True, retry=QUICK)
def book(what: str) -> str:
    seen.append((what, connection.in_atomic_block))
    Effect.objects.create(run="atomic", what=what)
    return what.upper()


@workflow(name="atomic.booking")
def booking(*whats: str) -> Workflow[list[str]]:
    return list((yield from gather(*(book(what) for what in whats), limit=1)))


@workflow(name="atomic.running", fails_on=StepFailed)
def running(name: str, *args: Any) -> Workflow[Any]:
    return (yield from runtime_step(name)(*args))


def runtime_step(name: str) -> Step[Any, Any]:
    from durable_celery.registry import registry

    found: Step[Any, Any] = registry.steps[name]
    return found


@step(name="atomic.deadlocked", atomic=True, retry=None)
def deadlocked(times: int) -> int:
    seen.append(current_step().attempt)
    Effect.objects.create(run="atomic", what="deadlocked")
    if len(seen) <= times:
        raise OperationalError("deadlock detected")
    return len(seen)
