"""A schedule that starts a workflow: one instance a slot, whoever sends, however often."""

from __future__ import annotations

import threading
from datetime import datetime, timedelta, timezone
from types import SimpleNamespace
from typing import Any

import pytest
from celery.schedules import crontab, schedule
from django.db import connection

from django_app.models import WorkflowInstance
from durable_celery import workflow
from durable_celery.celery.slots import SLOT, mark_slots, slot_of
from durable_celery.client import start_by_schedule

NOW = datetime(2026, 11, 29, 12, 0, 5, 700000, tzinfo=timezone.utc)


@workflow(name="tests.scheduled")
def scheduled(what: str) -> str:
    return what


def at(seconds: float) -> datetime:
    return NOW.replace(second=0, microsecond=0) + timedelta(seconds=seconds)


def entry(when: Any, task: str = "tests.scheduled") -> Any:
    return SimpleNamespace(name="every", task=task, schedule=when, options={})


@pytest.mark.parametrize(
    ("when", "slot"),
    [
        (schedule(timedelta(seconds=2)), {"at": at(4).isoformat(), "every": 2.0}),
        (schedule(60), {"at": at(0).isoformat(), "every": 60.0}),
        (crontab(), {"at": at(0).isoformat()}),
        (crontab(minute="55", hour="11"), {"at": at(-300).isoformat()}),
    ],
)
def test_two_beats_find_the_same_slot(when: Any, slot: dict[str, Any]) -> None:
    assert slot_of(entry(when), NOW) == {"entry": "every", **slot}
    assert slot_of(entry(when), NOW + timedelta(seconds=0.2)) == {"entry": "every", **slot}


def test_only_entries_that_start_workflows_are_marked() -> None:
    sent: list[Any] = []
    scheduler = SimpleNamespace(apply_async=lambda entry, **kwargs: sent.append(entry.options))
    mark_slots(scheduler)
    mark_slots(scheduler)
    scheduler.apply_async(entry(schedule(2)))
    scheduler.apply_async(entry(schedule(2), task="some.task"))
    assert [SLOT in options.get("headers", {}) for options in sent] == [True, False]


def memos() -> list[str]:
    return sorted(WorkflowInstance.objects.values_list("memo__slot", flat=True))


def start(seconds: float, every: float | None = 2.0) -> int:
    length = timedelta(seconds=every) if every else None
    return len(start_by_schedule("tests.scheduled", ("x",), {}, "every", at(seconds), length))


@pytest.mark.django_db(transaction=True)
def test_a_slot_sent_twice_starts_one_instance() -> None:
    assert [start(2), start(2), start(4), start(2), start(4)] == [1, 0, 1, 0, 0]
    assert memos() == [at(2).isoformat(), at(4).isoformat()]


@pytest.mark.django_db(transaction=True)
def test_a_slot_missed_by_a_late_beat_is_started_and_a_long_gap_is_not_filled() -> None:
    assert [start(2), start(6), start(600)] == [1, 2, 1]
    assert memos() == [at(s).isoformat() for s in (2, 4, 6, 600)]


@pytest.mark.django_db(transaction=True)
def test_a_message_of_an_earlier_slot_that_comes_late_starts_nothing() -> None:
    assert [start(2), start(600), start(300), start(600)] == [1, 1, 0, 0]
    assert memos() == [at(2).isoformat(), at(600).isoformat()]


@pytest.mark.django_db(transaction=True)
def test_a_crontab_starts_one_instance_a_minute() -> None:
    assert [start(0, None), start(0, None), start(60, None), start(3600, None)] == [1, 0, 1, 1]


@pytest.mark.django_db(transaction=True)
def test_ten_messages_of_one_slot_at_once_start_one_instance() -> None:
    start(0)
    barrier = threading.Barrier(10)
    counts: list[int] = []

    def send() -> None:
        try:
            barrier.wait()
            counts.append(start(2))
        finally:
            connection.close()

    threads = [threading.Thread(target=send) for _ in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(counts) == [0] * 9 + [1]
    assert memos() == [at(0).isoformat(), at(2).isoformat()]
