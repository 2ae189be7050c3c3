"""Long waits: a sleep, and beside it a step whose second attempt comes late."""

from __future__ import annotations

from durable_celery import RetryPolicy, Workflow, current_step, gather, sleep, step, workflow
from tests.project.testapp.steps import note, say


@step
def unlucky(run: str) -> int:
    """Fails once."""
    note(run, "unlucky")
    if current_step().attempt == 1:
        raise RuntimeError("no luck")
    return current_step().attempt


@workflow
def waiting_long(run: str, seconds: float) -> Workflow[list[object]]:
    """Both waits side by side, and x after the sleep."""
    policy = RetryPolicy(initial_interval=seconds, jitter=False)
    _, attempt = yield from gather(sleep(seconds), unlucky.using(retry=policy)(run))
    x = yield from say(run, "x")
    return [x, attempt]
