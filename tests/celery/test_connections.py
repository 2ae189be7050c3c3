"""What a worker node costs its surroundings: connections, log lines, rows of results."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from django.db import connection

from django_app.models import EngineHeartbeat
from tests.processes import ROOT, Worker, eventually, start_beat
from tests.project.testapp.steps import say
from tests.project.testapp.workflows import napping, parallel, retrying, sequence

pytestmark = [pytest.mark.prefork, pytest.mark.django_db(transaction=True), pytest.mark.timeout(180)]

CHILDREN = 3
TICKS = 4  # that pass in silence
ENV = {"PGAPPNAME": "durable-node", "TEST_RESULTS": "django-db"}
RESULTS = ("taskresult", "groupresult", "chordcounter")


@pytest.fixture(autouse=True)
def _tables_of_results() -> None:
    """The tables of django-celery-results, which the tests' own process does not know."""
    env = {**os.environ, **ENV, "DJANGO_SETTINGS_MODULE": "tests.project.settings"}
    command = [sys.executable, "-m", "django", "migrate", "django_celery_results", "--verbosity=0"]
    subprocess.run(command, cwd=ROOT, env=env, check=True, stdin=subprocess.DEVNULL)
    with connection.cursor() as cursor:
        for table in RESULTS:
            cursor.execute(f"DELETE FROM django_celery_results_{table}")


@pytest.fixture(params=["database", "file"])
def beat(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Worker]:
    """Beat with the scheduler of django-celery-beat, or with Celery's own."""
    of_celery = ["--scheduler=celery.beat:PersistentScheduler", f"--schedule={tmp_path / 'schedule'}"]
    log = tmp_path / "beat.log"
    beat = start_beat(
        log, arguments=[] if request.param == "database" else of_celery, env={"TEST_RESULTS": "django-db"}
    )
    yield beat
    beat.clear()
    print(f"--- {log.name}\n{beat.text()}")


@pytest.mark.parametrize("age", [0, 600])
def test_a_node_has_no_more_connections_than_its_pool_has_processes_and_one(start_worker, age: int) -> None:
    worker = start_worker(concurrency=CHILDREN, env={**ENV, "TEST_DATABASE": f'{{"CONN_MAX_AGE": {age}}}'})
    handles: list[Any] = sequence.start_many([("connections", 5)] * 10) + parallel.start_many([("connections", 6)] * 5)
    most, looks = 0, 0
    while any(handle.status != "COMPLETED" for handle in handles):
        most, looks = max(most, connections_of(worker)), looks + 1
        assert looks < 2000
    assert looks > 10
    assert (1 if connection.vendor != "sqlite" else 0) <= most <= CHILDREN + 1


def test_no_line_is_logged_and_no_row_is_written_for_ticks_of_beat_or_workflows(start_worker, beat: Worker) -> None:
    worker = start_worker(env={**ENV, "TEST_DURABLE_CELERY": '{"TICK_IN_WORKER": false}'})
    run = f"quiet-{time.time_ns()}"
    handles: list[Any] = [
        *sequence.start_many([(run, 3)] * 3), parallel.start(run, 3), retrying.start(run, 1), napping.start(run, 0.5),
    ]  # fmt: skip
    for handle in handles:
        handle.result(timeout=60)
    let_ticks_pass(1)
    assert_quiet(worker, beat)
    assert rows() == dict.fromkeys(RESULTS, 0)


def test_no_line_is_logged_for_ticks_of_a_worker(start_worker) -> None:
    worker = start_worker(env=ENV)
    let_ticks_pass(1)
    assert_quiet(worker)


def test_a_plain_call_of_a_step_keeps_its_result_as_the_project_says(start_worker) -> None:
    start_worker(env=ENV)
    say.delay("plain", "hello")
    eventually(lambda: rows()["taskresult"] == 1, "the result of a plain call")


def assert_quiet(*processes: Worker) -> None:
    before = [logged(process) for process in processes]
    let_ticks_pass(TICKS)
    after = [logged(process) for process in processes]
    assert after == before
    assert not any("durable_celery.tick" in line for lines in after for line in lines)


def connections_of(worker: Worker) -> int:
    """How many connections to the database the processes of this worker have open."""
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT COUNT(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name = %s",
                [ENV["PGAPPNAME"]],
            )
            count: int = cursor.fetchone()[0]
        return count
    port = connection.settings_dict["PORT"]
    found = [inet for pid in (worker.pid, *worker.children()) for inet in inets_of(pid)]
    return sum(bool(inet.raddr) and inet.raddr.port == port and inet.status == "ESTABLISHED" for inet in found)


def inets_of(pid: int) -> list[Any]:
    try:
        return list(psutil.Process(pid).net_connections("inet"))
    except psutil.NoSuchProcess:
        return []


def let_ticks_pass(count: int) -> None:
    seen = set()

    def passed() -> bool:
        seen.add(EngineHeartbeat.objects.values_list("last_tick_at", flat=True).first())
        return len(seen) > count

    eventually(passed, f"{count} ticks")


def rows() -> dict[str, int]:
    counts = {}
    with connection.cursor() as cursor:
        for table in RESULTS:
            cursor.execute(f"SELECT COUNT(*) FROM django_celery_results_{table}")
            counts[table] = cursor.fetchone()[0]
    return counts


def logged(process: Worker) -> list[str]:
    """The lines of its log, without the banner, which names every task."""
    return [line for line in process.text().splitlines() if line.startswith("20")]
