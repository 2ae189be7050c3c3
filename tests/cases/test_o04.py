"""O-04: a process killed at its hard time limit has acknowledged its message, late acks or not, so that no broker sends
it again. The attempt must be known as timed out all the same, and another follow."""

from __future__ import annotations

import pytest

from django_app.models import StepAttempt, StepResult
from durable_celery import WorkflowFailed
from durable_celery.core.failure import Failure
from tests.effects import effects
from tests.project.testapp.case_kills import limited

LATE_ACKS = {"TEST_CELERY": '{"task_acks_late": true}', "TEST_DURABLE_CELERY": '{"TICK": 0.2}'}

pytestmark = [pytest.mark.prefork, pytest.mark.kill, pytest.mark.django_db(transaction=True)]


def test_o04_an_attempt_killed_at_its_hard_limit_is_timed_out_and_followed_by_another_or_the_failure(start_worker):
    start_worker(env=LATE_ACKS)
    again = limited.start("again", 1, 2)
    once = limited.start("once", 9, 1)

    assert again.result(timeout=40) == 7
    assert again.status == "COMPLETED"
    with pytest.raises(WorkflowFailed) as failed:
        once.result(timeout=40)
    assert once.status == "FAILED"

    assert effects("again") == {"deaf": 2}
    assert [(a.attempt, a.outcome) for a in attempts_of(again)] == [(1, "timed out")]
    assert again.history()[0].attempts == 2
    assert "start_to_close_timeout of 1 s" in Failure.from_text(attempts_of(again)[0].failure or "").message

    assert effects("once") == {"deaf": 1}
    assert [(a.attempt, a.outcome) for a in attempts_of(once)] == [(1, "timed out")]
    assert failed.value.error_type.endswith(".StepFailed")
    assert "tests.project.testapp.case_kills.deaf" in str(failed.value)
    assert "start_to_close_timeout of 1 s" in str(failed.value)
    [step] = StepResult.objects.filter(instance_id=once.id)
    error = once.history()[0].error
    assert error is not None
    assert (step.state, error.timed_out, error.lost) == ("FAILED", True, False)


def attempts_of(handle) -> list[StepAttempt]:
    return list(StepAttempt.objects.filter(step__instance_id=handle.id).order_by("id"))
