"""O-52: a body that catches every exception eats the soft time limit as well. It is killed at the hard one, its step
has timed out, and its place in the pool is free. A project's own global limits hit no code of the engine."""

from __future__ import annotations

import pytest
from celery.exceptions import SoftTimeLimitExceeded

from django_app.models import StepAttempt, StepResult
from durable_celery import StepFailed, Workflow, WorkflowFailed, faults, step, workflow
from tests.effects import effects
from tests.project.testapp.case_kills import limited, taking_time

GLOBAL_LIMITS = {
    "TEST_CELERY": '{"task_soft_time_limit": 1, "task_time_limit": 2}',
    "TEST_DURABLE_CELERY": '{"TICK": 0.2}',
}


@pytest.mark.kill
@pytest.mark.prefork
@pytest.mark.django_db(transaction=True)
def test_o52_a_body_deaf_to_its_time_limit_is_killed_and_its_place_is_free_again(start_worker):
    worker = start_worker(concurrency=1, env=GLOBAL_LIMITS)
    [child] = worker.children()
    deaf = limited.start("deaf", 9, 1)
    next_one = taking_time.start("next", 2.5)

    with pytest.raises(WorkflowFailed) as failed:
        deaf.result(timeout=30)
    assert deaf.status == "FAILED"
    assert "tests.project.testapp.case_kills.deaf" in str(failed.value)
    [row] = StepResult.objects.filter(instance_id=deaf.id)
    error = deaf.history()[0].error
    assert error is not None
    assert (row.state, row.failures, row.deaths, error.timed_out) == ("FAILED", 1, 0, True)
    assert [a.outcome for a in StepAttempt.objects.filter(step=row)] == ["timed out"]

    assert next_one.result(timeout=30) == "done"  # longer than the project's global limits
    assert (effects("deaf"), effects("next")) == ({"deaf": 1}, {"took time": 1})
    assert child not in worker.children()
    assert "killing pool process" in worker.text()


# -- the engine's own code ------------------------------------------------------------------------------------------


class Interrupted:
    """A guard that raises in the body, as the signal does at the soft limit; `eaten` says the body caught it."""

    fired = False

    def limit(self, seconds, token):  # noqa: ARG002
        return self

    def __enter__(self):
        self.fired = True

    def __exit__(self, *_):
        return None


@step(retry=None)
def interrupted() -> None:
    raise SoftTimeLimitExceeded


@step(retry=None)
def harmless() -> str:
    return "done"


@workflow
def interrupting() -> Workflow[list[object]]:
    try:
        yield from interrupted()
    except StepFailed as error:
        return [error.timed_out, error.lost, error.error_type]
    return []


@workflow
def harmlessly() -> Workflow[str]:
    return (yield from harmless())


def test_o52_the_soft_limit_out_of_a_body_is_recorded_as_a_time_out(pump):
    pump.guard = Interrupted()
    handle = interrupting.start()
    pump.finish()
    assert handle.result(timeout=0) == [True, False, "TimeoutError"]


@pytest.mark.parametrize("point", ["turn.before_body", "turn.before_commit", "record.before", "claim.before"])
def test_o52_a_time_limit_that_strikes_in_the_engine_is_not_swallowed_and_blocks_nothing(pump, point):
    struck: list[str] = []

    def strike(reached: str) -> None:
        if reached == point and not struck:
            struck.append(reached)
            raise SoftTimeLimitExceeded

    handle = harmlessly.start()
    faults.set_hook(strike)
    with pytest.raises(SoftTimeLimitExceeded):
        pump.drain()
    faults.set_hook(None)
    assert handle.status in ("PENDING", "WAITING")
    pump.advance_time(700)  # a claimed step has its time limit for a net, where its process lives on
    assert struck == [point]
    assert handle.result(timeout=0) == "done" if point != "record.before" else handle.status == "FAILED"
