"""The database is away for longer than a lease: nobody is declared dead for it, and everything goes on afterwards."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from django_app.models import EngineHeartbeat, StepAttempt, StepResult, WorkerLease
from durable_celery import runtime
from tests.effects import effects
from tests.processes import eventually
from tests.project.testapp.workflows import lingering, napping, parallel, sequence
from tests.strain import proxy

pytestmark = [pytest.mark.prefork, pytest.mark.django_db(transaction=True), pytest.mark.timeout(400)]

GAP = timedelta(seconds=6)  # without a tick: longer than any lease has left
BY_DAY = {"LEASE": 5, "TICK": 0.5}


@pytest.mark.parametrize(("settings", "seconds"), [
    pytest.param(BY_DAY, 0, marks=pytest.mark.on("postgres", "redis")),
    pytest.param({}, 30, marks=[pytest.mark.nightly, pytest.mark.server]),
])  # fmt: skip
def test_an_outage_longer_than_a_lease_kills_nobody_and_loses_nothing(
    start_worker: Callable[..., Any], tmp_path: Path, settings: dict[str, float], seconds: float
) -> None:
    """The workers' way to the server is cut; this process sees it all the while."""
    variable = f"TEST_{os.environ['TEST_DB'].upper()}_URL"
    with proxy.before(os.environ[variable]) as (way, url):
        env = {variable: url, "TEST_DURABLE_CELERY": json.dumps(settings)}
        workers = [start_worker(env=env, arguments=["-n", f"away{number}@host"]) for number in (1, 2)]
        gate = tmp_path / "gate"
        slow = [lingering.start(f"slow {number}", str(gate)) for number in (1, 2)]
        eventually(lambda: all(effects(f"slow {number}") for number in (1, 2)), "two bodies that run", seconds=60)
        naps = napping.start("away", 1)
        eventually(lambda: StepResult.objects.filter(kind="timer").exists(), "a timer that runs", seconds=60)
        claimed = set(StepResult.objects.filter(state="RUNNING").values_list("pk", "attempt", "lease_id"))
        assert len(claimed) == 2
        leases = set(WorkerLease.objects.values_list("pk", flat=True))

        assert way.cut() > 0
        began = time.monotonic()
        handles: list[Any] = [*sequence.start_many([("away", 2)] * 3), parallel.start("away", 4)]  # meanwhile
        eventually(lambda: out_of_touch() and time.monotonic() - began >= seconds, "leases that ran out", seconds=120)
        gate.touch()  # both bodies end while there is nobody to tell
        eventually(lambda: way.refused > 3, "workers that try", seconds=60)
        way.restore()

        assert [handle.result(timeout=120) for handle in slow] == ["done"] * 2
        assert [handle.result(timeout=120) for handle in (naps, *handles)][:2] == ["after", ["step 0", "step 1"]]
        assert effects("slow 1") == effects("slow 2") == {"lingering": 1, "done": 1}
        assert max(effects("away").values()) == 3
        assert effects("away")["step 0"] == 3
        ended = StepResult.objects.filter(pk__in=[pk for pk, *_ in claimed]).values_list(
            "attempt", "deaths", "expiries"
        )
        assert set(ended) == {(1, 0, 0)}
        assert not StepResult.objects.exclude(deaths=0).exists()
        assert not StepAttempt.objects.exists()
        # The same leases as before, renewed: nobody was buried.
        assert not WorkerLease.objects.filter(dead_at__isnull=False).exists()
        assert set(WorkerLease.objects.values_list("pk", flat=True)) == leases
        for worker in workers:
            assert "was declared dead" not in worker.text()


def out_of_touch() -> bool:
    """Whether every lease ran out and no tick came for so long, by the database's clock."""
    now = runtime.current().clock.measure()
    late = WorkerLease.objects.filter(expires_at__gte=now - timedelta(seconds=1)).exists()
    ticked = EngineHeartbeat.objects.values_list("last_tick_at", flat=True).get()
    return not late and ticked is not None and now - ticked > GAP
