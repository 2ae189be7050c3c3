"""The doctor, its verb and the health page."""

from __future__ import annotations

import json
from datetime import datetime, timedelta, timezone
from typing import Any
from uuid import uuid4

import pytest
from celery import current_app
from django.db import connection
from django.db.migrations.recorder import MigrationRecorder
from django.test import override_settings
from django.test.utils import CaptureQueriesContext
from django_celery_beat.models import IntervalSchedule, PeriodicTask

from django_app import checks, doctor, health, readiness, vitals
from django_app.models import EngineHeartbeat, WorkerLease
from tests.django_app.rows import new_instance, new_message, new_step

pytestmark = pytest.mark.django_db

NOW = datetime(2026, 11, 29, 12, 0, tzinfo=timezone.utc)
HOUR = timedelta(hours=1)


@pytest.fixture
def healthy() -> WorkerLease:
    """A worker with a live lease, which ticks."""
    EngineHeartbeat.objects.update_or_create(pk=1, defaults={"last_tick_at": NOW, "healthy_since": NOW})
    lease: WorkerLease = WorkerLease.objects.create(id=uuid4(), node="a", pid=1, start_ticks=1, expires_at=NOW + HOUR)
    return lease


def found(**options: Any) -> dict[str, doctor.Finding]:
    findings = doctor.findings(now=NOW, **options)
    by_id = {finding.id: finding for finding in findings}
    assert len(by_id) == len(findings) or "unclaimed" in by_id
    return by_id


def test_a_healthy_engine_has_no_findings(healthy: Any) -> None:
    busy = new_instance(state="RUNNING")
    new_step(busy, "1", state="RUNNING", lease_id=healthy.pk, started_at=NOW)
    new_step(busy, "2", state="SCHEDULED", scheduled_at=NOW, attempt=0, look_at=NOW + HOUR)
    new_step(busy, "3", kind="timer", name="", state="SCHEDULED", scheduled_at=NOW - HOUR, look_at=NOW + HOUR)
    new_instance(state="COMPLETED", expected_at=NOW - HOUR)
    assert found() == {}


def test_no_tick_and_no_worker_are_found() -> None:
    assert set(found()) == {"tick", "workers"}
    assert "celery -A proj worker" in found()["workers"].do


def test_a_tick_that_stopped_is_found_after_the_patience(healthy: Any) -> None:
    EngineHeartbeat.objects.update(last_tick_at=NOW - timedelta(seconds=61))
    assert set(found()) == {"tick"}
    assert found(patience=timedelta(seconds=90)) == {}


def test_blocked_and_stuck_instances_are_found_by_name(healthy: Any) -> None:
    blocked = new_instance(state="BLOCKED", name="shop.buy", waiting_for="TypeError")
    stuck = new_instance(expected_at=NOW - HOUR, name="shop.sell")
    findings = found()
    assert set(findings) == {"blocked", "stuck"}
    assert findings["blocked"].examples == [str(blocked.pk)]
    assert "1 instance is blocked, of shop.buy" in findings["blocked"].text
    assert findings["stuck"].examples == [str(stuck.pk)]


def test_steps_no_worker_takes_are_found_by_queue(healthy: Any) -> None:
    instance = new_instance()
    for number in range(3):
        new_step(instance, f"{number}", state="SCHEDULED", attempt=0, scheduled_at=NOW - HOUR, queue="vip")
    findings = doctor.findings(now=NOW)
    assert [(f.id, f.count) for f in findings] == [("unclaimed", 3)]
    assert "queue 'vip'" in findings[0].text


def test_retries_and_starts_no_worker_takes_are_found_by_queue(healthy: Any) -> None:
    waiting = new_instance()
    new_step(waiting, "1", state="RETRYING", due_at=NOW - HOUR, look_at=NOW + HOUR, queue="slow")
    new_step(waiting, "2", state="RETRYING", due_at=NOW + HOUR, look_at=NOW + HOUR, queue="slow")
    new_instance(state="PENDING", start_at=NOW - HOUR, queue="vip")
    new_instance(state="PENDING", start_at=NOW + HOUR, queue="vip")
    new_instance(state="PENDING", start_at=NOW - HOUR, queue="vip", paused_at=NOW)
    findings = doctor.findings(now=NOW)
    assert [(f.id, f.count) for f in findings] == [("unclaimed", 1), ("unclaimed", 1)]
    assert "1 retries of steps in queue 'slow'" in findings[0].text
    assert "1 started workflows in queue 'vip'" in findings[1].text


@pytest.mark.parametrize("fields", [{"paused_at": NOW}, {"state": "TERMINATED"}])
def test_steps_of_paused_and_closed_instances_are_in_order(healthy: Any, fields: dict[str, Any]) -> None:
    instance = new_instance(**fields)
    new_step(instance, "1", state="SCHEDULED", attempt=0, scheduled_at=NOW - HOUR, look_at=NOW - HOUR)
    assert found() == {}


def test_rows_the_ticks_do_not_reach_are_found(healthy: Any) -> None:
    new_step(new_instance(), "1", kind="timer", name="", state="SCHEDULED", look_at=NOW - HOUR, scheduled_at=NOW - HOUR)
    assert set(found()) == {"overdue"}


def test_an_outcome_no_turn_took_in_is_found(healthy: Any) -> None:
    instance = new_instance()
    new_step(instance, "1", state="SUCCEEDED", finished_at=NOW - HOUR)
    new_step(instance, "2", state="SUCCEEDED", finished_at=NOW - HOUR, taken_turn=1)
    new_step(instance, "3.0", state="SUCCEEDED", finished_at=NOW - HOUR, join="3")
    assert set(found()) == {"outcomes"}
    assert found()["outcomes"].examples == [str(instance.pk)]


def test_a_step_on_a_lease_that_ran_out_is_found(healthy: Any) -> None:
    gone = WorkerLease.objects.create(id=uuid4(), node="b", pid=2, start_ticks=2, expires_at=NOW - HOUR)
    new_step(new_instance(), "1", state="RUNNING", lease_id=gone.pk, started_at=NOW - HOUR)
    assert set(found()) == {"lost"}


def test_wrong_settings_are_found(healthy: Any) -> None:
    with override_settings(DURABLE_CELERY={"LAESE": 5}):
        assert "did you mean 'LEASE'" in found()["durable_celery.E001"].text


def test_a_missing_migration_ends_the_examination_with_the_command_to_run(healthy: Any) -> None:
    MigrationRecorder(connection).record_unapplied("durable_celery", "0001_initial")
    findings = found()
    assert set(findings) == {"migrations"}
    assert "0001_initial" in findings["migrations"].text
    assert findings["migrations"].do == "manage.py migrate"


def test_a_worker_that_starts_without_our_migrations_says_what_to_run(caplog: pytest.LogCaptureFixture) -> None:
    MigrationRecorder(connection).record_unapplied("durable_celery", "0001_initial")
    readiness.report()
    assert "0001_initial" in caplog.text
    assert "Run manage.py migrate" in caplog.text
    assert caplog.records[-1].levelname == "CRITICAL"


def test_a_worker_that_starts_on_a_migrated_database_says_nothing(caplog: pytest.LogCaptureFixture) -> None:
    readiness.report()
    assert caplog.records == []


def test_the_number_of_queries_does_not_grow_with_rows(healthy: Any) -> None:
    def count() -> int:
        with CaptureQueriesContext(connection) as queries:
            doctor.findings(now=NOW)
        return len(queries)

    def some() -> None:
        for fields in ({"state": "BLOCKED"}, {"expected_at": NOW - HOUR}):
            new_step(new_instance(**fields), "1", state="SCHEDULED", attempt=0, scheduled_at=NOW - HOUR, look_at=NOW)

    some()
    few = count()
    for _ in range(20):
        some()
    assert count() == few


# -- Beat, queues, workers ---------------------------------------------------------------------------------------------


def test_a_dead_beat_is_found_unless_its_entry_is_off(healthy: Any) -> None:
    EngineHeartbeat.objects.update(beat_at=NOW - timedelta(seconds=50))
    assert found() == {}
    EngineHeartbeat.objects.update(beat_at=NOW - HOUR)
    assert set(found()) == {"beat"}
    assert "celery -A proj beat" in found()["beat"].do
    every = IntervalSchedule.objects.create(every=1, period="seconds")
    entry = PeriodicTask.objects.create(name="tick", task="durable_celery.tick", interval=every)
    assert set(found()) == {"beat"}
    PeriodicTask.objects.filter(pk=entry.pk).update(enabled=False)
    assert found() == {}


def test_a_dead_beat_is_told_by_the_check_and_over_the_list_in_the_admin(healthy: Any, admin_client: Any) -> None:
    def page() -> str:
        text: str = admin_client.get("/admin/durable_celery/workflowinstance/").content.decode()
        return text

    now = datetime.now(timezone.utc)
    EngineHeartbeat.objects.update(beat_at=now)
    assert checks.check_beat_lives(None, databases=["default"]) == []
    assert "Beat seems to be dead" not in page()
    EngineHeartbeat.objects.update(beat_at=now - HOUR)
    (told,) = checks.check_beat_lives(None, databases=["default"])
    assert told.id == "durable_celery.W003"
    assert "celery -A proj beat" in told.msg
    assert checks.check_beat_lives(None, databases=None) == [], "only who asks for the database"
    assert "Beat seems to be dead" in page()


def test_a_queue_without_a_worker_is_found(healthy: Any) -> None:
    new_step(new_instance(), "1", state="SCHEDULED", attempt=0, scheduled_at=NOW, queue="vip")
    assert found() == {}, "that worker did not say what it consumes"
    WorkerLease.objects.update(queues="celery\nslow")
    assert set(found()) == {"queues"}
    assert "'vip'" in found()["queues"].text
    WorkerLease.objects.update(queues="celery\nvip")
    assert found() == {}


def test_a_worker_that_is_connected_and_consumes_nothing_is_found(healthy: Any) -> None:
    WorkerLease.objects.update(queues="vip")
    instance = new_instance()
    new_step(instance, "1", state="SCHEDULED", attempt=0, scheduled_at=NOW - HOUR, queue="vip")
    assert set(found()) == {"unclaimed", "deaf"}
    assert "'a': connected" in found()["deaf"].text
    WorkerLease.objects.update(lag=70)
    assert set(found()) == {"unclaimed"}, "it takes what came before"
    WorkerLease.objects.update(lag=0)
    new_step(instance, "2", state="RUNNING", lease_id=healthy.pk, started_at=NOW, queue="vip")
    assert set(found()) == {"unclaimed"}, "it is busy"


@pytest.mark.parametrize("what", ["step", "retry", "start"])
def test_the_default_queue_is_a_queue_like_any_other(healthy: Any, what: str) -> None:
    default = current_app.conf.task_default_queue
    if what == "start":
        new_instance(state="PENDING", start_at=NOW - HOUR)
    else:
        fields = {"state": "SCHEDULED", "attempt": 0} if what == "step" else {"state": "RETRYING", "due_at": NOW - HOUR}
        new_step(new_instance(), "1", scheduled_at=NOW - HOUR, look_at=NOW + HOUR, **fields)
    assert doctor.state(now=NOW)["queues"] == ({"name": default, "unclaimed": 1, "oldest": NOW - HOUR},)
    WorkerLease.objects.update(queues="another")
    assert set(found()) == {"unclaimed", "queues"}
    assert repr(default) in found()["queues"].text
    WorkerLease.objects.update(queues=default)
    assert set(found()) == {"unclaimed", "deaf"}


def test_open_instances_without_a_waker_are_found_by_a_thorough_look(healthy: Any) -> None:
    lost = new_instance(start_at=NOW - HOUR)
    new_step(lost, "1", taken_turn=1)
    new_step(new_instance(start_at=NOW - HOUR), "1", kind="signal", state="SCHEDULED")
    new_instance(start_at=NOW - HOUR, look_at=NOW + HOUR)
    new_instance(start_at=NOW - HOUR, paused_at=NOW)
    told = new_instance(start_at=NOW - HOUR)
    new_message(told, "go", look_at=NOW + HOUR)
    assert found() == {}
    assert set(found(thorough=True)) == {"waker"}
    assert found(thorough=True)["waker"].examples == [str(lost.pk)]


def test_of_those_that_wait_longest_one_without_a_waker_is_found_by_every_look(
    healthy: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def waits(since: datetime, **fields: Any) -> Any:
        return new_instance(state="WAITING", start_at=NOW - HOUR, waiting_since=since, **fields)

    new_step(waits(NOW - 3 * HOUR), "1", kind="signal", state="SCHEDULED")
    lost = waits(NOW - 2 * HOUR)
    assert found()["waker"].examples == [str(lost.pk)]
    assert doctor.state(now=NOW)["without_waker"] == 1
    monkeypatch.setattr(vitals, "SAMPLE", 1)
    assert found() == {}, "so many are read, and no more"
    assert set(found(thorough=True)) == {"waker"}


def test_the_state_is_told_in_numbers(healthy: Any) -> None:
    EngineHeartbeat.objects.update(beat_at=NOW, last_tick_by="a")
    WorkerLease.objects.update(queues="celery", lag=2.5)
    WorkerLease.objects.create(id=uuid4(), node="b", pid=2, start_ticks=2, expires_at=NOW - HOUR)
    row = new_instance()
    new_step(row, "1", state="SCHEDULED", attempt=0, scheduled_at=NOW - HOUR, queue="vip", look_at=NOW - HOUR)
    state = doctor.state(now=NOW)
    assert state["queues"] == ({"name": "vip", "unclaimed": 1, "oldest": NOW - HOUR},)
    assert (state["last_tick_at"], state["last_tick_by"], state["last_beat_at"]) == (NOW, "a", NOW)
    assert (state["workers"], state["dead_leases"], state["lag"]) == (1, 1, 2.5)
    assert (state["oldest_due_at"], state["queues_without_worker"], state["deaf"]) == (NOW - HOUR, ("vip",), ())
    assert (state["table_version"], state["missing_migrations"], state["newer_migrations"]) == ("0001_initial", (), ())


# -- tables of another release -----------------------------------------------------------------------------------------


def test_newer_tables_are_told_and_nothing_is_wrong(healthy: Any, caplog: pytest.LogCaptureFixture) -> None:
    MigrationRecorder(connection).record_applied("durable_celery", "0009_something_new")
    assert found() == {}
    state = doctor.state(now=NOW)
    assert (state["table_version"], state["newer_migrations"]) == ("0009_something_new", ("0009_something_new",))
    readiness.report()
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert "are of a newer release than this worker (0009_something_new)" in record.getMessage()


def test_a_database_that_is_not_among_those_of_the_project_is_a_finding(rf: Any) -> None:
    with override_settings(DURABLE_CELERY={"DATABASE": "nowhere"}):
        finding = found()["database"]
        page = health.health(rf.get("/healthz"))
    assert "'nowhere'" in finding.text
    assert "check DATABASES" in finding.do
    assert (page.status_code, json.loads(page.content)["findings"]) == (503, ["database"])
