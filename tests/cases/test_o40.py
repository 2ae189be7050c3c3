"""With CONN_MAX_AGE, forked pool processes used the socket their parent had opened: wrong rows, "already closed".

Each pool process talks over connections of its own, whatever the main process had open when it forked.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections import defaultdict

import pytest
from django.db import connection

from durable_celery.handle import WorkflowHandle
from tests.processes import ROOT, eventually
from tests.project.testapp.case_connections import BACKENDS, talking

pytestmark = pytest.mark.django_db(transaction=True)

SOME, ALL, STEPS = 24, 200, 3  # all take minutes where a pool process is forked for every five messages
ENV = {"TEST_DATABASE": '{"CONN_MAX_AGE": 600}', "TEST_CONNECT_AT_IMPORT": "1"}
BROKEN = (
    "InterfaceError",
    "OperationalError",
    "already closed",
    "gone away",
    "unexpectedly",
    "out of sync",
    "sequence number",
)


@pytest.mark.prefork
@pytest.mark.timeout(600)
@pytest.mark.parametrize("number", [SOME, pytest.param(ALL, marks=pytest.mark.nightly)])
def test_o40_forked_processes_share_no_connection_with_their_parent_or_each_other(start_worker, number: int) -> None:
    worker = start_worker(concurrency=4, arguments=("--max-tasks-per-child=5",), env=ENV)
    handles: list[WorkflowHandle[list[tuple[int, int, int]]]] = talking.start_many([(STEPS,)] * number)
    connected: set[int] = set()

    def all_ended() -> bool:
        connected.update(connections_now())
        return not any(handle.status in ("PENDING", "RUNNING", "WAITING") for handle in handles[-5:])

    eventually(all_ended, "the end of all", seconds=500, every=0.3)
    results = [told for handle in handles for told in handle.result(timeout=60)]
    assert [handle.status for handle in handles] == ["COMPLETED"] * number
    assert len(results) == number * STEPS
    processes = {process for process, _, _ in results}
    assert len(processes) > 4, "no pool process was replaced"
    assert worker.pid not in processes
    if connection.vendor in BACKENDS:
        users = defaultdict(set)
        for process, backend, at_import in results:
            users[backend].add(process)
            assert at_import not in (0, backend), "a pool process talks over its parent's connection"
        assert all(len(who) == 1 for who in users.values()), users
        assert len(users) >= len(processes)
    if connection.vendor == "postgresql":
        assert len(connected & set(users)) > 1
    assert not [line for line in worker.text().splitlines() if any(word in line for word in BROKEN)]


def connections_now() -> set[int]:
    """The connections to this database that the server itself sees."""
    if connection.vendor != "postgresql":
        return set()
    with connection.cursor() as cursor:
        cursor.execute("SELECT pid FROM pg_stat_activity WHERE datname = current_database()")
        return {pid for (pid,) in cursor.fetchall()}


READY = """
import json
from django.db.backends.utils import CursorWrapper
from django.db.backends.base.base import BaseDatabaseWrapper
touched = []
for cls, name in ((BaseDatabaseWrapper, "connect"), (CursorWrapper, "execute"), (CursorWrapper, "executemany")):
    setattr(cls, name, lambda *args, **kwargs: touched.append(args[1:]) or None)
import django
django.setup()
from django.apps import apps
from durable_celery import runtime
print(json.dumps({"touched": len(touched), "ready": apps.ready and runtime.current() is not None}))
"""


def test_o40_our_own_ready_makes_no_query_and_opens_no_connection() -> None:
    done = subprocess.run(
        [sys.executable, "-c", READY], cwd=ROOT, capture_output=True, text=True, check=False
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"touched": 0, "ready": True}
