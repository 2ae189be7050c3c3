"""Fan-outs of the cases about joining, for workers that run as processes."""

from __future__ import annotations

from durable_celery import RetryPolicy, StepFailed, Workflow, gather, step, workflow
from tests.project.testapp.steps import flaky, note, say

TWICE_MORE = RetryPolicy(maximum_attempts=3, initial_interval=0.2, backoff_coefficient=1.0, jitter=False)


@step(retry=TWICE_MORE)
def always_fails(run: str, what: str) -> None:
    note(run, what)
    raise RuntimeError(what)


@workflow
def joined(run: str, failures: int) -> Workflow[list[object]]:
    return list((yield from gather(say(run, "quiet"), flaky(run, "flaky", failures))))


@workflow
def all_failing(run: str) -> Workflow[list[str]]:
    try:
        yield from gather(*(always_fails(run, name) for name in ("a", "b", "c")))
    except StepFailed as error:
        return [failed.message for failed in error.errors]
    return []


@workflow
def compensating(run: str) -> Workflow[str]:
    try:
        yield from gather(always_fails.using(retry=None)(run, "boom"), say(run, "slow"))
    except StepFailed as error:
        values = [value for value in error.results if value is not None]
        return (yield from say(run, f"made good after {values}"))
    return "nothing failed"
