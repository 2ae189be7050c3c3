"""Workers whose transactions see snapshots: what fails for a change of others is tried again, by nobody's account."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection, transaction

from django_app.models import StepAttempt, StepResult, WorkflowInstance
from tests.effects import effects
from tests.project.testapp.workflows import napping, parallel, sequence
from tests.store.making import at_once

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.prefork,
    pytest.mark.server,
    pytest.mark.django_db(transaction=True),
    pytest.mark.timeout(600),
]

LEVEL: dict[str, dict[str, Any]] = {
    "postgresql": {"isolation_level": 3},  # psycopg.IsolationLevel.REPEATABLE_READ
    "mysql": {"isolation_level": "repeatable read", "charset": "utf8mb4"},
}


def test_under_repeatable_read_all_end_once_beside_somebody_who_changes_the_same_rows(
    start_worker: Callable[..., Any],
) -> None:
    env = {"TEST_DATABASE": json.dumps({"OPTIONS": LEVEL[connection.vendor]}), "TEST_DURABLE_CELERY": '{"TICK": 0.3}'}
    workers = [start_worker(concurrency=3, env=env, arguments=["-n", f"snapshot{n}@host"]) for n in (1, 2)]
    handles: list[Any] = [*parallel.start_many([("snap", 8)] * 5), *sequence.start_many([("snap", 4)] * 5),
                          napping.start("snap", 1)]  # fmt: skip
    ended = threading.Event()

    def disturb() -> None:
        while not ended.wait(0.02):
            with transaction.atomic():
                WorkflowInstance.objects.update(status_text="disturbed")

    def wait() -> list[Any]:
        try:
            return [handle.result(timeout=200) for handle in handles]
        finally:
            ended.set()

    _, results = at_once(disturb, wait)
    assert results[:5] == [[f"member {n}" for n in range(8)]] * 5
    assert results[5:] == [[f"step {n}" for n in range(4)]] * 5 + ["after"]
    assert set(effects("snap").values()) == {5, 1}
    assert set(StepResult.objects.filter(kind="step").values_list("attempt", "failures", "deaths")) == {(1, 0, 0)}
    assert not StepAttempt.objects.exists()
    for worker in workers:
        assert "was interrupted; the tick goes on with it" not in worker.text()
