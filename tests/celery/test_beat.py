from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from celery.beat import PersistentScheduler, Service

from durable_celery import runtime
from durable_celery.celery.beat import entry, on_beat_init
from durable_celery.celery.quiet import PURGE, TICK
from tests.celery.fakes import runtime_with


@pytest.fixture(autouse=True)
def _tick_of_two_seconds(fake_store):
    runtime.install(runtime_with(fake_store, tick=timedelta(seconds=2)))


def service(app: Any, tmp_path: Path) -> Service:
    return Service(app, schedule_filename=str(tmp_path / "schedule"), scheduler_cls=PersistentScheduler)


def test_the_file_scheduler_gets_the_entry_after_its_own_schedule(new_app, tmp_path):
    app = new_app()
    app.conf.beat_schedule = {"theirs": {"task": "theirs", "schedule": 30}}
    beat = service(app, tmp_path)
    on_beat_init(sender=beat)
    assert set(beat.scheduler.schedule) >= {"theirs", TICK, PURGE}
    added: Any = beat.scheduler.schedule[TICK]
    assert added.task == TICK
    assert added.schedule.run_every == timedelta(seconds=2)
    assert added.options["expires"] == 2
    beat.scheduler.close()


def test_an_entry_of_the_projects_own_is_kept(new_app, tmp_path):
    app = new_app()
    app.conf.beat_schedule = {TICK: {"task": TICK, "schedule": 30}}
    beat = service(app, tmp_path)
    on_beat_init(sender=beat)
    kept: Any = beat.scheduler.schedule[TICK]
    assert kept.schedule.run_every == timedelta(seconds=30)
    beat.scheduler.close()


@pytest.mark.django_db(transaction=True)
def test_the_database_scheduler_gets_the_entry_once_and_a_disabled_one_stays_disabled(new_app):
    from django_celery_beat.models import PeriodicTask
    from django_celery_beat.schedulers import DatabaseScheduler

    app = new_app()
    on_beat_init(sender=SimpleNamespace(scheduler=DatabaseScheduler(app=app)))
    made = PeriodicTask.objects.get(task=TICK)
    assert made.enabled
    assert made.expire_seconds == 2
    assert (made.interval.every, made.interval.period) == (2, "seconds")
    PeriodicTask.objects.filter(pk=made.pk).update(enabled=False, name="our tick, renamed")
    on_beat_init(sender=SimpleNamespace(scheduler=DatabaseScheduler(app=app)))
    assert PeriodicTask.objects.filter(task=TICK).count() == 1
    assert not PeriodicTask.objects.get(task=TICK).enabled


@pytest.mark.parametrize(("tick", "seconds"), [(0.05, 1), (1, 1), (1.4, 1), (2.6, 3)])
def test_beat_counts_in_whole_seconds(tick, seconds):
    made = entry(TICK, timedelta(seconds=tick))
    assert made["schedule"] == timedelta(seconds=seconds)
    assert made["options"] == {"expires": seconds, "expire_seconds": seconds}


def test_a_scheduler_that_fails_does_not_stop_beat(caplog):
    class Broken:
        schedule = property(lambda self: 1 / 0)

    on_beat_init(sender=SimpleNamespace(scheduler=Broken()))
    assert "could not take the entry" in caplog.text


def test_a_beat_without_the_app_says_what_to_do(caplog):
    runtime.install(None)
    on_beat_init(sender=SimpleNamespace(scheduler=None))
    assert "add 'durable_celery' to INSTALLED_APPS" in caplog.text


def test_the_purge_is_an_hourly_entry_unless_everything_is_kept(new_app, tmp_path, fake_store):
    beat = service(new_app(), tmp_path)
    on_beat_init(sender=beat)
    added: Any = beat.scheduler.schedule[PURGE]
    assert added.task == PURGE
    assert added.schedule.run_every == timedelta(hours=1)
    beat.scheduler.close()
    runtime.install(runtime_with(fake_store, retention=None))
    other = tmp_path / "other"
    other.mkdir()
    keeping = service(new_app(), other)
    on_beat_init(sender=keeping)
    assert TICK in keeping.scheduler.schedule
    assert PURGE not in keeping.scheduler.schedule
    keeping.scheduler.close()
