"""O-01: a broker hands a message that waits out again when its visibility time-out is over, so no wait may ride on one.
Sleeps and long retries are rows with a due time; nothing of theirs is in the broker meanwhile."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import pytest

from django_app.models import StepResult
from durable_celery import RetryPolicy, Workflow, sleep, step, workflow
from durable_celery.celery.transport import SOON, CeleryTransport
from durable_celery.conf import Settings
from durable_celery.ports import Dispatch
from tests.broker import redis_messages, redis_unacknowledged, waiting_messages
from tests.effects import effects
from tests.processes import eventually
from tests.project.celery import app
from tests.project.surroundings import BROKER
from tests.project.testapp.case_kills import retrying_after
from tests.project.testapp.workflows import napping

VISIBILITY = '{"visibility_timeout": 2, "unacked_restore_interval": 1, "unacked_restore_throttle": 1}'
REDIS = {"TEST_BROKER_OPTIONS": VISIBILITY} if BROKER == "redis" else {}
LONG = 6  # seconds: over SOON, and three times the visibility time-out


@pytest.mark.prefork
@pytest.mark.django_db(transaction=True)
def test_o01_a_long_sleep_and_a_long_retry_are_rows_and_no_message_waits_meanwhile(start_worker):
    for number in range(2):
        start_worker(concurrency=1, arguments=["-n", f"w{number}@%h"], env={**REDIS, "TEST_DURABLE_CELERY": "{}"})
    handles = napping.start("nap", LONG), retrying_after.start("retry", LONG, 1)
    eventually(lambda: [row.state for row in waits(handles)] == ["SCHEDULED", "RETRYING"], "both to wait")
    for row in waits(handles):
        assert row.due_at is not None
        assert row.look_at == row.due_at
    eventually(broker_is_empty, "a broker without a message while they wait")
    while all(handle.status == "WAITING" for handle in handles) and effects("retry")["flaky"] == 1:
        assert BROKER != "redis" or delayed_in_redis() == []

    assert handles[0].result(timeout=30) == "after"
    assert handles[1].result(timeout=30) == 2
    assert [handle.status for handle in handles] == ["COMPLETED"] * 2
    assert effects("nap") == {"before": 1, "after": 1}
    assert effects("retry") == {"flaky": 2}
    assert handles[1].history()[0].attempts == 2


def waits(handles) -> list[StepResult]:
    rows = StepResult.objects.filter(instance_id__in=[handle.id for handle in handles], due_at__isnull=False)
    return list(rows.order_by("-kind"))


def delayed_in_redis() -> list[dict[str, Any]]:
    return [message["headers"] for message in redis_messages() if message.get("headers", {}).get("eta")]


def broker_is_empty() -> bool:
    return waiting_messages() == 0 and (BROKER != "redis" or redis_unacknowledged() == 0)


# -- what is asked of Celery ------------------------------------------------------------------------------------------


@step(retry=RetryPolicy(initial_interval=40, maximum_attempts=3, jitter=False))
def slow_to_retry(attempts: list[int]) -> int:
    started.append(1)
    if len(started) == 1:
        raise RuntimeError("no luck")
    return len(started)


@step(retry=RetryPolicy(initial_interval=SOON, maximum_attempts=3, jitter=False))
def quick_to_retry() -> int:
    started.append(1)
    if len(started) == 3:
        raise RuntimeError("no luck")
    return len(started)


@workflow
def waiting_long() -> Workflow[list[int]]:
    first = yield from slow_to_retry([])
    yield from sleep(40)
    return [first, (yield from quick_to_retry())]


started: list[int] = []


def test_o01_no_call_to_celery_asks_for_an_eta_or_for_more_than_a_short_countdown(pump, monkeypatch):
    calls: list[dict[str, Any]] = []
    monkeypatch.setattr(type(app), "send_task", lambda self, name, *args, **options: calls.append(options))
    celery = CeleryTransport(Settings(), lambda: app)
    dispatch, advance = pump.dispatch, pump.advance

    def both_dispatch(dispatches: Sequence[Dispatch], now: datetime) -> int:
        celery.dispatch(dispatches, now)
        return int(dispatch(dispatches, now))

    def both_advance(*args: Any, **options: Any) -> bool:
        celery.advance(*args, **options)
        return bool(advance(*args, **options))

    monkeypatch.setattr(pump, "dispatch", both_dispatch)
    monkeypatch.setattr(pump, "advance", both_advance)
    started.clear()
    began = pump.now
    handle = waiting_long.start()
    pump.finish()

    assert handle.result(timeout=0) == [2, 4]
    assert (pump.now - began).total_seconds() == 40 + 40 + SOON
    assert len(calls) >= 5
    assert [call for call in calls if call.get("eta") is not None] == []
    countdowns = [call["countdown"] for call in calls if call["countdown"] is not None]
    assert countdowns == [SOON]  # of the short retry alone, as a hint; the row has the due time
