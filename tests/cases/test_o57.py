"""O-57: kills and an outage of the database must not make a sleep longer: its end is fixed when it is recorded."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db import OperationalError, connection

from django_app.models import EngineHeartbeat, StepResult
from durable_celery import Workflow, now, sleep, step, workflow
from tests.effects import effects
from tests.processes import eventually
from tests.project.testapp.workflows import napping

FAST = {"env": {"TEST_DURABLE_CELERY": '{"TICK": 0.2}'}, "concurrency": 1}


@pytest.mark.kill
@pytest.mark.prefork
@pytest.mark.django_db(transaction=True)
def test_o57_a_sleep_keeps_its_end_through_two_killed_workers(start_worker):
    sleep_through_two_kills(start_worker)


@pytest.mark.nightly
@pytest.mark.kill
@pytest.mark.prefork
@pytest.mark.django_db(transaction=True)
def test_o57_a_sleep_ends_within_a_tick_of_its_end(start_worker):
    ended = sleep_through_two_kills(start_worker)
    assert ended.taken_at - ended.due_at < timedelta(seconds=0.2 + 0.5)


def sleep_through_two_kills(start_worker) -> StepResult:
    handle = napping.start("run", 5)
    worker = start_worker(**FAST)
    eventually(lambda: timers(handle), "the record of the sleep")
    [recorded] = timers(handle)
    assert recorded.due_at - recorded.scheduled_at == timedelta(seconds=5)
    for _ in range(2):
        worker.kill()
        before = EngineHeartbeat.objects.get().last_tick_at
        worker = start_worker(**FAST)
        eventually(lambda before=before: EngineHeartbeat.objects.get().last_tick_at > before, "a tick after the kill")

    assert handle.result(timeout=30) == "after"
    [ended] = timers(handle)
    assert (ended.pk, ended.due_at, ended.finished_at) == (recorded.pk, recorded.due_at, recorded.due_at)
    assert ended.taken_at >= recorded.due_at
    assert effects("run") == {"before": 1, "after": 1}
    return ended


def timers(handle) -> list[StepResult]:
    return list(StepResult.objects.filter(instance_id=handle.id, kind="timer"))


# -- by a clock of our own --------------------------------------------------------------------------------------------


@step
def doze() -> str:
    return "dozed"


@workflow
def sleeping() -> Workflow[list[object]]:
    began = now()
    yield from sleep(10)
    woke = now()
    yield from doze()
    return [began, woke]


@pytest.mark.parametrize("point", ["turn.before_commit", "turn.in_transaction", "turn.after_commit", "publish.after"])
def test_o57_a_sleep_takes_as_long_as_it_was_recorded_for_whatever_dies_or_is_away_meanwhile(pump, point):
    handle = sleeping.start()
    pump.kill_at(point)  # in the turn that records the sleep
    pump.advance_time(3)
    [recorded] = timers(handle)
    for away in (False, True, True, False):  # at 3, 4, 5 and 6 seconds; the database comes back, the process dies
        if away:
            with database_away(), pytest.raises(OperationalError):
                pump.advance_time(1)
            pump.now += timedelta(seconds=1)
        else:
            pump.kill_at("tick.before_act")
            pump.advance_time(1)
        assert timers(handle)[0].due_at == recorded.due_at
        assert handle.status == "WAITING"
    pump.finish()

    span: Any = handle.result(timeout=0)
    began, woke = span
    assert began == recorded.scheduled_at
    assert recorded.due_at == recorded.scheduled_at + timedelta(seconds=10)
    assert timedelta(0) <= woke - recorded.due_at <= pump.settings.tick
    assert len(timers(handle)) == 1


def test_o57_a_sleep_that_ends_while_the_database_is_away_ends_when_it_is_back_and_not_later(pump):
    handle = sleeping.start()
    pump.advance_time(9)
    with database_away(), pytest.raises(OperationalError):
        pump.advance_time(2)
    pump.now += timedelta(seconds=3)
    pump.advance_time(0)
    span: Any = handle.result(timeout=0)
    began, woke = span
    assert woke - began == pump.now - began


def database_away():
    def refuse(execute, sql, params, many, context):
        raise OperationalError("the database is away")

    return connection.execute_wrapper(refuse)
