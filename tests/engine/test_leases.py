"""Whose claims are given back, and when: a lease is of one process of one boot of one machine, and dies by proof or by
the clock, and by the clock only while that has run in good order."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest

from django_app.models import EngineHeartbeat, StepResult, WorkerLease
from durable_celery import Workflow, runtime, step, sweeps, workflow
from durable_celery.engine.attempts import run
from durable_celery.runtime import Incarnation
from tests.pump import Killed, Pump

attempts: list[int] = []


@step
def dying() -> str:
    attempts.append(len(attempts) + 1)
    if len(attempts) == 1:
        raise Killed
    return "done"


@workflow
def surviving() -> Workflow[str]:
    return (yield from dying())


@pytest.fixture
def claimed(pump: Pump) -> Any:
    """A step claimed under a lease of boot "boot", namespace "ns", pid 4711, start 99; its process is not heard of."""
    attempts.clear()
    handle = surviving.start()
    pump.deliver(pump.queue[0])
    assert pump.lease is not None
    theirs = replace(pump.lease, id=uuid4(), pid=4711, start_ticks=99)
    runtime.current().store.open_lease(theirs)
    row = StepResult.objects.get(instance_id=handle.id)
    claim = runtime.current().store.claim(
        row.pk, token="theirs", lease_id=theirs.id, pid=4712, now=pump.now, close_at=None, look_at=None
    )
    assert claim is not None
    row.refresh_from_db()
    assert row.lease_id is not None
    return row


@pytest.mark.parametrize(
    ("boot_id", "pid_ns", "alive", "released"),
    [
        ("boot", "ns", False, 1),
        ("boot", "ns", True, 0),
        ("another boot", "ns", False, 0),
        ("boot", "another ns", False, 0),
        ("", "ns", False, 0),
    ],
)
def test_only_who_shares_boot_and_namespace_judges_by_the_number_of_a_process(
    pump: Pump, claimed: Any, boot_id: str, pid_ns: str, alive: bool, released: int
) -> None:
    asked: list[tuple[int, int]] = []

    def is_alive(pid: int, ticks: int) -> bool:
        asked.append((pid, ticks))
        return alive or pid != 4711

    if not boot_id:
        WorkerLease.objects.update(boot_id="")
    assert sweeps.bury_vanished(boot_id, pid_ns, is_alive) == released
    assert WorkerLease.objects.filter(dead_at__isnull=False).count() == released
    claimed.refresh_from_db()
    assert (claimed.state, claimed.deaths) == (("RETRYING", 1) if released else ("RUNNING", 0))
    assert ((4711, 99) in asked) is (boot_id == "boot" and pid_ns == "ns")


def test_the_death_of_one_pool_process_frees_its_claims_and_no_others(pump: Pump, claimed: Any) -> None:
    assert sweeps.release(claimed.lease_id, 4713, reason="another child died") == 0
    assert sweeps.release(claimed.lease_id, 4712, reason="it died") == 1


def test_no_lease_is_taken_over_before_the_clock_has_run_for_one(pump: Pump, claimed: Any) -> None:
    """After an outage of the database all leases have run out at once, and nobody has died."""
    pump.tick()
    pump.now += timedelta(hours=1)

    def tick() -> Any:
        EngineHeartbeat.objects.update(last_tick_at=pump.now - timedelta(seconds=1))
        return sweeps.tick(by="pump")

    assert sweeps.tick(by="pump").leases == 0, "the first look after a gap"
    pump.now += pump.settings.lease / 2
    assert tick().leases == 0
    assert runtime.current().store.renew_lease(claimed.lease_id, pump.now + pump.settings.lease), "it is back"
    pump.now += pump.settings.lease / 2
    assert tick().leases == 1, "that of the pump, which renewed nothing"
    claimed.refresh_from_db()
    assert claimed.state == "RUNNING"
    for _ in range(3):
        pump.now += pump.settings.lease / 2
        tick()
    claimed.refresh_from_db()
    assert (claimed.state, claimed.expiries, claimed.deaths) == ("RETRYING", 1, 0)


def test_a_process_whose_lease_was_declared_dead_claims_nothing(pump: Pump) -> None:
    attempts.clear()
    handle = surviving.start()
    pump.deliver(pump.queue[0])
    assert pump.lease is not None
    runtime.current().store.bury_lease(pump.lease.id, pump.now)
    row = StepResult.objects.get(instance_id=handle.id)
    answer = run(row.pk, incarnation=Incarnation(lease_id=pump.lease.id, node="pump"))
    assert (answer.kind, attempts) == ("refused", [])
