"""The signal ``instance_stuck`` and its log line: once for each period, by whichever tick is first."""

from __future__ import annotations

import logging
from datetime import timedelta
from uuid import UUID

import pytest

from django_app import signals
from django_app.models import EngineHeartbeat, WorkflowInstance
from django_app.store import stuck
from durable_celery import Signal, Workflow, gather, runtime, workflow
from tests.django_app.test_signals import listening
from tests.pump import Pump, counted
from tests.store.making import at_once
from tests.store.test_sweeping import plan_of, refresh_statistics

pytestmark = pytest.mark.django_db(transaction=True)

HOUR = timedelta(hours=1)
first, second = Signal("first"), Signal("second")


@workflow(name="stuck.slow", expected=3600)
def slow() -> Workflow[None]:
    yield from first.wait()


@workflow(name="stuck.warned")
def warned() -> Workflow[None]:
    yield from first.wait(warn_after=60)
    yield from second.wait(warn_after=60)


@workflow(name="stuck.both")
def both() -> Workflow[None]:
    yield from gather(first.wait(warn_after=60), second.wait(warn_after=600))


def test_it_is_told_once_that_an_instance_is_open_for_too_long(pump: Pump, caplog: pytest.LogCaptureFixture) -> None:
    handle = slow.using(key="order-7").start()
    with listening(signals.instance_stuck) as heard, caplog.at_level(logging.WARNING, "durable_celery"):
        pump.advance_time(minutes=59)
        assert heard == []
        expected_at = WorkflowInstance.objects.get().expected_at
        pump.advance_time(minutes=2)
        pump.advance_time(hours=5)
        pump.advance_time(hours=5)
    assert heard == [
        {"sender": WorkflowInstance, "instance_id": UUID(handle.id), "workflow": "stuck.slow", "key": "order-7",
         "since": expected_at}
    ]  # fmt: skip
    lines = [record.getMessage() for record in caplog.records if "is stuck since" in record.getMessage()]
    assert len(lines) == 1
    assert "workflow stuck.slow (key order-7)" in lines[0]
    assert "first" in lines[0]


def test_the_next_late_wait_is_a_new_period(pump: Pump) -> None:
    handle = warned.start()
    with listening(signals.instance_stuck) as heard:
        pump.advance_time(minutes=10)
        assert len(heard) == 1
        handle.signal("first")
        pump.advance_time(seconds=30)
        assert len(heard) == 1
        pump.advance_time(minutes=10)
        assert len(heard) == 2
        assert heard[1]["since"] > heard[0]["since"]
        handle.signal("second")
        pump.advance_time(minutes=10)
    assert len(heard) == 2
    assert handle.result() is None


def test_an_instance_that_was_never_late_is_not_told(pump: Pump) -> None:
    handle = warned.start()
    with listening(signals.instance_stuck) as heard:
        pump.advance_time(seconds=30)
        handle.signal("first")
        handle.signal("second")
        pump.advance_time(hours=2)
    assert heard == []


def test_the_second_of_two_waits_is_told_when_the_first_one_ends(pump: Pump) -> None:
    handle = both.start()
    with listening(signals.instance_stuck) as heard:
        pump.advance_time(minutes=5)
        handle.signal("first")
        pump.advance_time(minutes=4)
        assert len(heard) == 1
        pump.advance_time(minutes=4)
    assert len(heard) == 2


def test_two_ticks_at_once_tell_it_once(pump: Pump) -> None:
    slow.start()
    pump.drain()
    pump.now += 2 * HOUR
    store = runtime.current().store
    found = at_once(*[lambda: list(store.newly_stuck(pump.now, 10)) for _ in range(4)])
    assert sorted(len(some) for some in found) == [0, 0, 0, 1], found


def test_more_than_one_look_takes_are_all_told(pump: Pump) -> None:
    slow.start_many([() for _ in range(5)])
    pump.drain()
    pump.now += 2 * HOUR
    store = runtime.current().store
    assert store.take_tick(pump.now, timedelta(seconds=1), "a") is not None or EngineHeartbeat.objects.exists()
    told = []
    for _ in range(3):
        told += [each.instance_id for each in store.newly_stuck(pump.now, 2)]
    assert len(told) == len(set(told)) == 5
    assert store.newly_stuck(pump.now, 10) == []


def test_a_look_reads_neither_the_long_stuck_nor_the_parked(pump: Pump) -> None:
    slow.start()
    pump.drain()
    pump.now += 2 * HOUR
    pump.tick()
    row = WorkflowInstance.objects.values().get()
    WorkflowInstance.objects.bulk_create(
        WorkflowInstance(**{**row, "id": UUID(int=n), "chain_id": UUID(int=n), "expected_at": pump.now + 100 * HOUR})
        for n in range(1, 3000)
    )
    refresh_statistics()
    pump.now += stuck.EVERY
    with counted() as sent:
        assert runtime.current().store.newly_stuck(pump.now, 200) == []
    assert len(sent) == 4
    plans = [plan_of(one) for one in sent if one.startswith("SELECT") and "workflowinstance" in one]
    assert "durable_instance_expected" in plans[0], plans
    assert "durable_instance_warn" in plans[1], plans
    with counted() as sent:
        runtime.current().store.newly_stuck(pump.now, 200)
    assert len(sent) == 1, "between two looks it is one read of one row"
