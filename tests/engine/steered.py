"""Steps and workflows that the tests of cancelling and steering run."""

from __future__ import annotations

import pytest

from durable_celery import CancelRequested, RetryPolicy, Workflow, sleep, step, workflow

ran: list[str] = []
hooks: dict[str, object] = {}


@pytest.fixture(autouse=True)
def clean() -> None:
    ran.clear()
    hooks.clear()


@step(retry=RetryPolicy(maximum_attempts=3, initial_interval=5, jitter=False))
def note(what: str) -> str:
    ran.append(what)
    hook = hooks.pop(what, None)
    if callable(hook):
        hook()
    return what


@step(retry=RetryPolicy(maximum_attempts=3, initial_interval=5, jitter=False))
def fails(what: str) -> str:
    ran.append(what)
    hook = hooks.pop(what, None)
    if callable(hook):
        hook()
    raise ValueError(what)


@workflow
def cleaned() -> Workflow[str]:
    try:
        yield from note("charge").compensate_with(note("refund"))
        yield from sleep(3600)
    except CancelRequested:
        yield from note("cleaned")
        raise
    finally:
        yield from note("finally")
    return "done"


@workflow
def retried() -> Workflow[str]:
    return (yield from fails("flaky"))
