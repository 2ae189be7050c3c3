"""O-11: a worker's claims come back when its lease runs out, though its rows were pruned, and though a new worker of
the very same name is there and says that it lives."""

from __future__ import annotations

import pytest

from django_app.models import EngineHeartbeat, StepAttempt, StepResult, WorkerLease
from tests.effects import effects
from tests.processes import eventually
from tests.project.testapp.case_kills import reconsidering

POD = {"env": {"TEST_DURABLE_CELERY": '{"LEASE": 2, "TICK": 0.2}'}, "arguments": ["-n", "pod-1@h"], "concurrency": 1}

pytestmark = [pytest.mark.prefork, pytest.mark.kill, pytest.mark.django_db(transaction=True)]


@pytest.mark.parametrize("pruned", [True, False], ids=["its rows are pruned", "its lease is there"])
def test_o11_a_step_of_a_killed_worker_runs_again_under_a_new_worker_of_its_name(start_worker, tmp_path, pruned):
    handle = reconsidering.start("run", str(tmp_path / "never"), "returns")
    first = start_worker(**POD)
    eventually(lambda: effects("run") == {"attempt 1": 1}, "the first attempt")
    first.kill()
    [row] = StepResult.objects.filter(instance_id=handle.id)
    # Nobody can prove the death of a process on another machine: its lease must run out.
    old = WorkerLease.objects.get(pk=row.lease_id)
    WorkerLease.objects.update(boot_id="another machine")
    if pruned:
        WorkerLease.objects.all().delete()
        EngineHeartbeat.objects.all().delete()
    start_worker(**POD)
    eventually(lambda: new_lease_of(old) is not None, "the lease of the new worker")

    assert handle.result(timeout=30) == "B"
    assert handle.status == "COMPLETED"
    assert effects("run") == {"attempt 1": 1, "attempt 2": 1, "took B": 1}
    row.refresh_from_db()
    assert (row.state, row.attempt, row.expiries, row.deaths, row.failures) == ("SUCCEEDED", 2, 1, 0, 0)
    [kept] = StepAttempt.objects.filter(step=row)
    assert (kept.attempt, kept.outcome) == (1, "lost")
    new = new_lease_of(old)
    assert new is not None
    assert (new.node, new.dead_at) == (old.node, None)
    if not pruned:
        found = WorkerLease.objects.get(pk=old.pk)
        assert found.expires_at == old.expires_at  # the namesake renewed its own alone
        assert found.dead_at is not None
        assert kept.finished_at >= old.expires_at


def new_lease_of(old: WorkerLease) -> WorkerLease | None:
    return WorkerLease.objects.filter(node=old.node).exclude(pk=old.pk).first()
