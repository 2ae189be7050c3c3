"""SQLite with three workers that write at once: locks pass, nobody fails or repeats anything for them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from django_app.models import StepAttempt, StepResult
from tests.effects import effects
from tests.project.surroundings import FOLDER
from tests.project.testapp.workflows import parallel, sequence

pytestmark = [
    pytest.mark.engine,
    pytest.mark.django_db(transaction=True),
    pytest.mark.timeout(300),
    pytest.mark.on("sqlite", "memory", "filesystem"),
]

WRITERS = 3


@pytest.mark.parametrize("number", [6, pytest.param(40, marks=pytest.mark.nightly)])
def test_three_workers_and_this_process_write_one_file(start_worker: Callable[..., Any], number: int) -> None:
    env = {"TEST_BROKER": "filesystem", "TEST_BROKER_URL": "filesystem://", "TEST_DURABLE_CELERY": '{"TICK": 0.5}'}
    assert (FOLDER / "queue").is_dir()
    workers = [
        start_worker(concurrency=1, env=env, arguments=["-n", f"writer{n}@host"], ready=False) for n in range(WRITERS)
    ]
    for worker in workers:
        worker.wait_until_ready()
    handles: list[Any] = []
    for _ in range(number):
        handles += [sequence.start("writers", 3), parallel.start("writers", 4)]
    results = [handle.result(timeout=200) for handle in handles]
    assert results[0] == ["step 0", "step 1", "step 2"]
    assert results[-1] == [f"member {n}" for n in range(4)]
    assert set(effects("writers").values()) == {number}
    assert set(StepResult.objects.filter(kind="step").values_list("attempt", "failures", "deaths")) == {(1, 0, 0)}
    assert not StepAttempt.objects.exists()
    ran = [worker for worker in workers if "succeeded in" in worker.text()]
    assert len(ran) >= 2, "the work was shared"
    for worker in workers:
        assert "database is locked" not in worker.text()
