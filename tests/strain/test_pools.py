"""Pools without processes: each thread or greenlet gives its connection back, and none is left behind."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection

from django_app.models import StepResult
from tests.effects import effects
from tests.processes import eventually
from tests.project.testapp.workflows import napping, parallel, retrying, sequence

pytestmark = [pytest.mark.prefork, pytest.mark.django_db(transaction=True), pytest.mark.timeout(300)]

NAME = "durable-pool"
SIZE = 6
ROUNDS = 2


@pytest.mark.on("postgres", "redis")
@pytest.mark.parametrize(("pool", "age"), [
    ("threads", 0), pytest.param("threads", 600, marks=pytest.mark.nightly),
    ("gevent", 0), pytest.param("gevent", 600, marks=pytest.mark.nightly),
    pytest.param("solo", 600, marks=pytest.mark.nightly),
])  # fmt: skip
def test_no_connection_is_left_behind(start_worker: Callable[..., Any], pool: str, age: int) -> None:
    if pool == "gevent" and importlib.util.find_spec("gevent") is None:
        assert not os.environ.get("CI"), "gevent is not installed"
        pytest.skip("gevent is not installed")
    env = {"PGAPPNAME": NAME, "TEST_DATABASE": f'{{"CONN_MAX_AGE": {age}}}', "TEST_DURABLE_CELERY": '{"TICK": 0.5}'}
    worker = start_worker(pool=pool, concurrency=SIZE, env=env)
    most = 0
    for number in range(ROUNDS):
        run = f"pool {number}"
        handles: list[Any] = [
            *sequence.start_many([(run, 3)] * 4), parallel.start(run, 8), retrying.start(run, 1),
            napping.start(run, 0.5),
        ]  # fmt: skip
        while any(handle.status not in ("COMPLETED", "FAILED", "BLOCKED") for handle in handles):
            most = max(most, connections())
        assert [handle.status for handle in handles] == ["COMPLETED"] * len(handles)
        counts = effects(run)
        assert (counts["step 2"], counts["member 7"], counts["flaky"], counts["after"]) == (4, 1, 2, 1)
    assert 1 <= most <= SIZE + 2, "one for each at work, one for the clock, one for the lease"
    if not age:
        eventually(lambda: connections() <= 1, "connections that are given back", seconds=60)
    assert not StepResult.objects.exclude(deaths=0).exists()
    assert worker.stop(seconds=60) == 0
    eventually(lambda: connections() == 0, "no connection of a worker that ended", seconds=60)


def connections() -> int:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT COUNT(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name = %s", [NAME]
        )
        count: int = cursor.fetchone()[0]
    return count
