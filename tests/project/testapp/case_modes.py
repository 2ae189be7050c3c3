"""Workflows that must come out the same in the testing kit, under `task_always_eager` and with a worker."""

from __future__ import annotations

import threading
from datetime import timedelta
from typing import Any

from celery import shared_task

from durable_celery import RetryPolicy, Signal, StepFailed, Workflow, current_step, gather, now, sleep, step, workflow

go = Signal("go", int)
QUICK = RetryPolicy(initial_interval=0.1, jitter=False)


class Locked(Exception):
    """No pickle brings it back."""

    def __init__(self, message: str) -> None:
        super().__init__(message, threading.Lock())


@step(name="modes.echo")
def echo(value: Any) -> Any:
    return value


@step(name="modes.extend")
def extend(items: list[int]) -> list[int]:
    items.append(99)
    return items


@step(name="modes.fail", retry=None)
def fail(message: str) -> None:
    raise Locked(message)


@step(name="modes.flaky", retry=QUICK)
def flaky(failures: int) -> int:
    if current_step().attempt <= failures:
        raise Locked("not yet")
    return current_step().attempt


@step(name="modes.undo")
def undo(value: Any) -> None: ...


@step(name="modes.lost", retry=None)
def unkeepable() -> object:
    return object()


@shared_task(name="modes.double")
def double(number: int) -> int:
    return number * 2


@workflow(name="modes.set")
def passes_a_set(values: set[int]) -> Workflow[list[str]]:
    back = yield from echo(values)
    return [type(values).__name__, type(back).__name__, str(sorted(back))]


@workflow(name="modes.mutation")
def mutation(items: list[int]) -> Workflow[tuple[list[int], list[int]]]:
    extended = yield from extend(items)
    extended.append(100)
    again = yield from echo(items)
    return again, extended


@workflow(name="modes.error")
def error() -> Workflow[str]:
    try:
        yield from fail("m")
    except StepFailed as failed:
        yield from echo([failed.error_type, failed.attempts, failed.matches(Locked)])
    yield from echo("kept").compensate_with(undo)
    yield from fail("for good")
    return "not reached"


@workflow(name="modes.unkeepable")
def returns_an_object() -> Workflow[object]:
    return (yield from unkeepable())


@workflow(name="modes.retries")
def retries() -> Workflow[tuple[int, ...]]:
    return tuple((yield from gather(flaky(1), flaky(0))))


@workflow(name="modes.sleep")
def sleeps(seconds: float) -> Workflow[bool]:
    began = now()
    yield from sleep(seconds)
    yield from echo("slept")
    return now() - began >= timedelta(seconds=seconds)


@workflow(name="modes.signal")
def asks() -> Workflow[int]:
    number = yield from go.wait(timeout=timedelta(days=3))
    return (yield double.s(number))


@workflow(name="modes.bug")
def bug() -> Workflow[None]:
    yield from echo(1)
    raise ValueError("a bug")
