"""A worker of old and one of new code on the same queue, for real: every run ends by rule, and none is ever blocked."""

from __future__ import annotations

from typing import Any

import pytest

from django_app.models import StepResult, WorkflowInstance
from tests.effects import effects
from tests.processes import eventually
from tests.project.testapp.case_versions import approved, loan

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.prefork]

OLD, NEW = ["paid"], ["novel", "paid"]


@pytest.mark.timeout(240)
def test_old_and_new_workers_side_by_side_end_every_run_by_rule(start_worker) -> None:
    old = start_worker(arguments=["-n", "old@%h"], concurrency=1, env={"TEST_CODE": "old"})
    handles = [loan.start(f"mixed-{number}") for number in range(20)]
    before, during, after = handles[:4], handles[4:16], handles[16:]
    eventually(lambda: WorkflowInstance.objects.filter(state="WAITING").count() == 20, "all of them waiting")

    ends = approve(before)
    new = start_worker(arguments=["-n", "new@%h"], concurrency=1)
    ends += approve(during)
    old.stop()
    ends += approve(after)

    assert ends[:4] == [OLD] * 4
    assert all(end in (OLD, NEW) for end in ends)
    assert ends[16:] == [NEW] * 4
    for number, end in enumerate(ends):
        assert effects(f"mixed-{number}") == dict.fromkeys(end, 1)
    for worker in (old, new):
        assert "is BLOCKED" not in worker.text()
    assert StepResult.objects.filter(state="FAILED").count() == 0


def approve(handles: list[Any]) -> list[list[str]]:
    for handle in handles:
        approved.send(handle, "ana")
    return [handle.result(timeout=120) for handle in handles]
