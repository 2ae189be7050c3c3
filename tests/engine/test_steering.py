"""Terminate, time-out, pause, resume and retry, in process: what runs then, and what is left behind."""

from __future__ import annotations

from uuid import UUID

import pytest

from durable_celery import (
    NotRetryable,
    StepFailed,
    Workflow,
    WorkflowFailed,
    WorkflowTerminated,
    sleep,
    steering,
    workflow,
)
from tests.engine.steered import (
    clean,  # noqa: F401
    cleaned,
    fails,
    note,
    ran,
    retried,
)
from tests.pump import Pump

pytestmark = pytest.mark.django_db(transaction=True)


@workflow
def caught() -> Workflow[None]:
    try:
        yield from fails("flaky")
    except StepFailed:
        yield from note("later")
    yield from fails("last")


@workflow(execution_timeout=60)
def too_long() -> Workflow[None]:
    yield from note("charge").compensate_with(note("refund"))
    yield from sleep(3600)


@workflow
def naps() -> Workflow[str]:
    yield from sleep(10)
    return (yield from note("rested"))


def test_an_instance_past_its_execution_timeout_fails_with_timed_out_and_compensates(pump: Pump) -> None:
    handle = too_long.start()
    pump.advance_time(61)
    pump.drain()
    assert ran == ["charge", "refund"]
    assert handle.status == "FAILED"
    with pytest.raises(WorkflowFailed) as caught_:
        handle.result()
    assert caught_.value.error_type == "durable_celery.errors.WorkflowTimedOut"


def test_terminate_ends_at_once_without_compensation(pump: Pump) -> None:
    handle = cleaned.start()
    pump.drain()
    assert steering.terminate(UUID(handle.id), "stop") == "requested"
    pump.drain()
    assert ran == ["charge"]
    assert handle.status == "TERMINATED"
    with pytest.raises(WorkflowTerminated, match="stop"):
        handle.result()
    assert steering.terminate(UUID(handle.id)) == "TERMINATED"


def test_pause_holds_timers_and_resume_judges_what_fell_due(pump: Pump) -> None:
    handle = naps.start()
    pump.drain()
    steering.pause(UUID(handle.id), "hold on")
    pump.advance_time(100)
    assert handle.status == "PAUSED"
    assert ran == []
    steering.resume(UUID(handle.id))
    pump.drain()
    assert handle.result() == "rested"


def test_retry_of_a_failed_instance_runs_the_failed_step_afresh(pump: Pump) -> None:
    handle = retried.start()
    pump.finish()
    assert handle.status == "FAILED"
    assert ran == ["flaky"] * 3
    steering.retry(UUID(handle.id))
    assert handle.status == "RUNNING"
    pump.finish()
    assert ran == ["flaky"] * 6
    assert handle.status == "FAILED"
    (entry,) = handle.history()
    assert entry.attempts == 6


def test_retry_is_refused_where_later_steps_ran_or_compensation_did(pump: Pump) -> None:
    handle = cleaned.start()
    pump.drain()
    steering.cancel(UUID(handle.id))
    pump.drain()
    with pytest.raises(NotRetryable, match="CANCELLED"):
        steering.retry(UUID(handle.id))
    timed = too_long.start()
    pump.advance_time(61)
    pump.drain()
    with pytest.raises(NotRetryable, match="compensated"):
        steering.retry(UUID(timed.id))
