"""Redis behind a Sentinel: its master dies, the replica becomes it, and workflows in flight end as they should."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from django_app.models import StepResult
from tests.conftest import started
from tests.effects import effects
from tests.processes import eventually
from tests.project.testapp.workflows import lingering, napping, parallel, sequence
from tests.services import Service, sentinel
from tests.services.service import end

pytestmark = [
    pytest.mark.prefork,
    pytest.mark.kill,
    pytest.mark.django_db(transaction=True),
    pytest.mark.timeout(400),
    pytest.mark.on("postgres", "redis"),
]


@pytest.fixture
def servers() -> Iterator[Service]:
    with started("redis", sentinel.start()) as service:
        yield service


def test_workflows_outlive_the_failover(start_worker: Callable[..., Any], servers: Service, tmp_path: Path) -> None:
    env = {
        "TEST_BROKER_URL": servers.url,
        "TEST_BROKER_OPTIONS": json.dumps({"master_name": sentinel.MASTER}),
        "TEST_DURABLE_CELERY": '{"TICK": 0.5}',
    }
    worker = start_worker(env=env)
    gate = tmp_path / "gate"
    assert napping.start("before", 0.2).result(timeout=90) == "after"
    slow = lingering.start("slow", str(gate))
    eventually(lambda: effects("slow")["lingering"] == 1, "a body that runs", seconds=60)
    first = sentinel.master_port(servers)
    handles: list[Any] = [*sequence.start_many([("during", 3)] * 4), parallel.start("during", 5)]
    end(servers.pids[1], first=signal.SIGKILL)  # the master
    gate.touch()
    eventually(lambda: sentinel.master_port(servers) != first, "another master", seconds=90)
    assert slow.result(timeout=120) == "done"
    results = [handle.result(timeout=120) for handle in handles]
    assert results[:4] == [["step 0", "step 1", "step 2"]] * 4
    assert napping.start("after", 0.2).result(timeout=90) == "after"
    assert effects("slow") == {"lingering": 1, "done": 1}
    assert effects("during") == {
        **dict.fromkeys(("step 0", "step 1", "step 2"), 4),
        **dict.fromkeys((f"member {n}" for n in range(5)), 1),
    }
    assert not StepResult.objects.exclude(deaths=0).exists()
    assert not worker.ended()
