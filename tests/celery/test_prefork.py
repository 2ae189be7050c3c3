from __future__ import annotations

import json
import signal
import time
from functools import partial
from typing import Any

import pytest
from django.db import connection
from django.utils import timezone

from django_app.models import EngineHeartbeat, WorkerLease
from tests.celery.prefork_steps import lingering, never_ending, one, several
from tests.processes import eventually, runs, signal_to

pytestmark = [pytest.mark.prefork, pytest.mark.django_db(transaction=True)]


def settings(durable: dict[str, Any] | None = None, **celery: Any) -> dict[str, str]:
    return {
        "TEST_CELERY": json.dumps({"imports": ["tests.celery.prefork_steps"], **celery}),
        "TEST_DURABLE_CELERY": json.dumps(durable or {}),
    }


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "executions")


def executions(path: str) -> list[tuple[float, int]]:
    """(time, pid) of each execution so far."""
    try:
        with open(path) as file:
            return [(float(when), int(pid)) for when, pid in (line.split() for line in file)]
    except FileNotFoundError:
        return []


@pytest.mark.parametrize("name", ["loops", "queries"])
def test_a_body_past_its_limit_is_stopped_and_its_process_goes_on(start_worker, path, name):
    start_worker(concurrency=1, env=settings())
    assert one.start(name, path).result(timeout=30) == "done"
    (first, pid), (second, again) = executions(path)
    # SQLite computes in this process, and hears no signal until it is done.
    assert (pid == again) is (name == "loops" or connection.vendor != "sqlite")
    assert 0.4 < second - first < 6


def test_a_body_that_swallows_the_error_is_killed_three_seconds_later(start_worker, path):
    worker = start_worker(concurrency=1, env=settings())
    handle = one.start("swallows", path)
    assert handle.result(timeout=30) == "done"
    (first, pid), (second, again) = executions(path)
    assert pid != again
    assert 3.3 < second - first < 8
    (entry,) = handle.history()
    assert entry.attempts == 2
    assert "killing pool process" in worker.text()


@pytest.mark.parametrize("how", ["python", "c"])
def test_a_turn_that_never_ends_is_stopped_and_its_worker_serves_others(start_worker, path, how):
    worker = start_worker(concurrency=1, env=settings({"TURN_TIMEOUT": 0.5}))
    handle = never_ending.start(how, path)
    eventually(lambda: handle.status == "BLOCKED", "the turn being stopped")
    assert "the turn took longer than TURN_TIMEOUT of 0.5 s at" in handle.waiting_for
    assert ("line " in handle.waiting_for) is (how == "python")
    assert ("its process was ended" in handle.waiting_for) is (how == "c")
    (pid,) = set(several.start(path, 2).result(timeout=30))
    assert (pid == executions(path)[0][1]) is (how == "python")
    assert ("killing pool process" in worker.text()) is (how == "c")
    assert handle.status == "BLOCKED"


@pytest.mark.kill
def test_a_killed_childs_step_runs_again_on_the_only_place_there_is(start_worker, path):
    worker = start_worker(concurrency=1, env=settings())
    handle = lingering.start(path, 60)
    eventually(lambda: executions(path), "the step's first execution")
    killed = time.time()
    worker.kill_child(executions(path)[0][1])
    assert handle.result(timeout=30) == "done"
    assert executions(path)[1][0] - killed < 3


@pytest.mark.kill
def test_a_pool_lives_on_after_the_death_of_an_idle_child(start_worker, path):
    worker = start_worker(concurrency=2, env=settings())
    assert len(several.start(path, 2).result(timeout=30)) == 2
    for pid in worker.children()[:2]:
        worker.kill_child(pid)
        eventually(partial(ended, pid), "its death")
    assert len(several.start(path, 4).result(timeout=30)) == 4


@pytest.mark.kill
def test_children_all_killed_at_once_are_replaced(start_worker, path):
    worker = start_worker(concurrency=2, env=settings())
    for _ in range(2):
        for pid in worker.children():
            worker.kill_child(pid)
        assert len(several.start(path, 3).result(timeout=30)) == 3


def test_a_projects_global_time_limits_do_not_hit_steps(start_worker, path):
    start_worker(concurrency=1, env=settings(task_time_limit=2, task_soft_time_limit=1))
    handle = lingering.start(path, 3.5)
    assert handle.result(timeout=30) == "done"
    assert len(executions(path)) == 1


def test_children_that_are_recycled_after_every_task_lose_nothing(start_worker, path):
    start_worker(concurrency=2, env=settings(worker_max_tasks_per_child=1))
    pids = several.start(path, 4).result(timeout=60)
    assert len(set(pids)) == 4
    assert len(executions(path)) == 4


def test_a_warm_shutdown_lets_the_step_end_and_leaves_no_lease(start_worker, path):
    worker = start_worker(concurrency=1, env=settings())
    handle = lingering.start(path, 1.5)
    eventually(lambda: executions(path), "the step's start")
    assert worker.stop() == 0
    assert WorkerLease.objects.count() == 0
    start_worker(concurrency=1, env=settings())
    assert handle.result(timeout=30) == "done"
    assert len(executions(path)) == 1


def test_a_cold_shutdown_gives_its_steps_back_at_once(start_worker, path):
    worker = start_worker(concurrency=1, env=settings({"LEASE": 60}))
    handle = lingering.start(path, 60)
    eventually(lambda: executions(path), "the step's start")
    signal_to(worker.pid, signal.SIGQUIT)
    worker.process.wait(timeout=30)
    assert WorkerLease.objects.filter(dead_at=None).count() == 0
    start_worker(concurrency=1, env=settings({"LEASE": 60}))
    assert handle.result(timeout=30) == "done"


def test_a_worker_declared_dead_goes_on_under_a_new_lease(start_worker, path):
    worker = start_worker(concurrency=1, env=settings({"LEASE": 1.5}))
    first = WorkerLease.objects.get(dead_at=None)
    WorkerLease.objects.filter(pk=first.pk).update(dead_at=timezone.now())
    eventually(lambda: "was declared dead" in worker.text(), "the worker learning it")
    assert len(several.start(path, 2).result(timeout=30)) == 2
    assert WorkerLease.objects.get(dead_at=None).pk != first.pk


def test_no_line_is_logged_at_info_for_a_tick(start_worker, path):
    worker = start_worker(concurrency=1, beat=True, env=settings())
    before = worker.text()
    several.start(path, 2).result(timeout=30)
    eventually(lambda: _ticked_by_beat(), "a tick by Beat")
    eventually(lambda: EngineHeartbeat.objects.filter(beat_at__isnull=False).exists(), "Beat's sign of life")
    assert "durable_celery.tick" not in worker.text().replace(before, "")


def ended(pid: int) -> bool:
    return not runs(pid)


def _ticked_by_beat() -> bool:
    from django_celery_beat.models import PeriodicTask

    return bool(PeriodicTask.objects.filter(task="durable_celery.tick", enabled=True).exists())


@pytest.mark.parametrize("pool", ["solo", "threads"])
def test_other_pools_run_steps_and_leave_no_lease(start_worker, path, pool):
    worker = start_worker(pool=pool, concurrency=2, env=settings())
    assert len(several.start(path, 3).result(timeout=30)) == 3
    assert worker.stop() == 0
    assert WorkerLease.objects.count() == 0


@pytest.mark.kill
@pytest.mark.nightly
def test_spawned_children_hold_leases_of_their_own(start_worker, path):
    worker = start_worker(concurrency=2, env=settings(worker_pool_start_method="spawn"))
    handle = lingering.start(path, 60)
    eventually(lambda: executions(path), "the step's first execution")
    pid = executions(path)[0][1]
    assert WorkerLease.objects.filter(pid=pid, dead_at=None).exists()
    worker.kill_child(pid)
    assert handle.result(timeout=60) == "done"
    assert worker.stop() == 0
    assert WorkerLease.objects.filter(dead_at=None).count() == 0
