"""O-51: no wait follows the last attempt, and the last error is the one that is reported, the others listed with it."""

from __future__ import annotations

from datetime import timedelta

import pytest

from django_app.models import StepAttempt
from durable_celery import RetryPolicy, StepFailed, Workflow, WorkflowFailed, current_step, step, workflow
from tests.pump import BEGIN, Pump

seen: list[StepFailed] = []


class OutOfOrder(Exception):
    """What this gateway raises."""


@step(retry=RetryPolicy(maximum_attempts=3, initial_interval=30, backoff_coefficient=2, jitter=False))
def hopeless() -> None:
    raise OutOfOrder(f"x{current_step().attempt}")


@workflow
def hoping() -> Workflow[None]:
    try:
        yield from hopeless()
    except StepFailed as error:
        seen.append(error)
        raise


def test_o51_it_fails_at_once_after_the_third_start(pump: Pump) -> None:
    handle = hoping.start()
    pump.drain()
    pump.advance_time(seconds=29)
    assert len(pump.ended) == 1
    pump.advance_time(seconds=1)
    assert len(pump.ended) == 2
    pump.advance_time(seconds=59)
    assert len(pump.ended) == 2
    assert handle.status == "WAITING"
    pump.advance_time(seconds=1)
    assert len(pump.ended) == 3
    assert handle.status == "FAILED"
    assert pump.now - BEGIN == timedelta(seconds=90)
    (entry,) = handle.history()
    assert entry.finished_at == pump.now
    assert handle._row().finished_at == pump.now


def test_o51_the_body_gets_the_last_error_with_the_count_and_the_earlier_ones(pump: Pump) -> None:
    seen.clear()
    handle = hoping.start()
    pump.finish()
    error = seen[-1]
    assert error.attempts == 3
    assert error.error_type == f"{__name__}.OutOfOrder"
    assert error.matches(OutOfOrder)
    assert error.message == "x3"
    assert "raise OutOfOrder" in error.traceback
    assert error.earlier == ("OutOfOrder: x1", "OutOfOrder: x2")
    with pytest.raises(WorkflowFailed, match="x3"):
        handle.result(timeout=0)


def test_o51_earlier_attempts_are_kept_for_people(pump: Pump) -> None:
    handle = hoping.start()
    pump.finish()
    kept = StepAttempt.objects.filter(step__instance_id=handle.id).order_by("attempt")
    assert [record.attempt for record in kept] == [1, 2, 3]
    assert ["x1" in record.failure for record in kept] == [True, False, False]
    assert [record.outcome for record in kept] == ["failed"] * 3
    (entry,) = handle.history()
    assert entry.error is not None
    assert entry.error.message == "x3"
    assert entry.error.earlier == ("OutOfOrder: x1", "OutOfOrder: x2")
