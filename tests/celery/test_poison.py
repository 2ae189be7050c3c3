"""Steps and turns that end their process, eat its memory or never return: each ends or is BLOCKED after its cap, with
the reason, and everything else flows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from django_app.models import StepAttempt, StepResult, WorkflowInstance
from durable_celery import WorkflowFailed
from tests.celery.prefork_steps import dying_in_a_step, dying_in_a_turn, eating, one, several
from tests.processes import eventually

pytestmark = [pytest.mark.prefork, pytest.mark.kill, pytest.mark.django_db(transaction=True)]

ENDS = {"exit": "ended with exit code 0", "kill": "was killed by SIGKILL", "crash": "was killed by SIGSEGV"}


def settings(durable: dict[str, Any] | None = None, **celery: Any) -> dict[str, str]:
    return {
        "TEST_CELERY": json.dumps({"imports": ["tests.celery.prefork_steps"], **celery}),
        "TEST_DURABLE_CELERY": json.dumps({"TICK": 0.2, **(durable or {})}),
    }


def lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


def test_what_ends_its_process_or_never_returns_stops_after_its_cap_and_everything_else_flows(start_worker, tmp_path):
    deadly = {how: dying_in_a_turn.start(how, str(tmp_path / how)) for how in ENDS}
    step = dying_in_a_step.start(str(tmp_path / "step"))
    endless = one.start("swallows", str(tmp_path / "endless"))
    others = [several.start(str(tmp_path / f"other {number}"), 3) for number in range(6)]
    worker = start_worker(concurrency=2, env=settings())

    for other in others:
        assert len(other.result(timeout=60)) == 3
    with pytest.raises(WorkflowFailed) as failed:
        step.result(timeout=60)
    assert failed.value.attributes["lost"] is True
    assert endless.result(timeout=60) == "done"
    for how, handle in deadly.items():
        eventually(lambda handle=handle: handle.status == "BLOCKED", f"the end of turns that {how}", seconds=60)
        assert handle.waiting_for.startswith("blocked: 3 turns in a row took their process along, which is MAX_DEATHS")
        assert ENDS[how] in handle.waiting_for

    # It goes on with new work, and the blocked ones are not tried again meanwhile.
    assert len(several.start(str(tmp_path / "later"), 3).result(timeout=60)) == 3
    died = [len(lines(tmp_path / f"{how}.turns")) for how in ENDS]
    assert all(3 <= count <= 6 for count in died), "a second message may have begun a turn beside the third"
    assert len(several.start(str(tmp_path / "later still"), 3).result(timeout=60)) == 3
    assert [len(lines(tmp_path / f"{how}.turns")) for how in ENDS] == died
    assert not worker.ended()
    innocent = WorkflowInstance.objects.filter(name=several.name)
    assert not innocent.exclude(state="COMPLETED").exists()
    assert StepResult.objects.filter(instance__in=innocent, attempt__gt=2).count() == 0


def test_children_replaced_for_their_memory_or_their_tasks_are_no_deaths(start_worker, tmp_path):
    path = tmp_path / "executions"
    limits = {"worker_max_memory_per_child": 200_000, "worker_max_tasks_per_child": 3}  # KiB; a child has some 100,000
    worker = start_worker(concurrency=1, env=settings({"MAX_DEATHS": 1, "INLINE_STEPS": 0}, **limits))
    assert eating.start(str(path), 3, 150).result(timeout=60) == [150, 150, 150]
    assert len(several.start(str(path), 3).result(timeout=60)) == 3
    pids = [line.split()[1] for line in lines(path)]
    assert len(pids) == 6
    assert len(set(pids[:3])) == 3, "a child that has eaten so much is not used again"
    assert StepResult.objects.exclude(state="SUCCEEDED").count() == 0
    assert StepResult.objects.exclude(attempt=1).count() == StepResult.objects.exclude(deaths=0).count() == 0
    assert StepAttempt.objects.count() == 0
    assert "took its process along" not in worker.text()
