"""Workers that stand still for longer than their lease, or whose clock is set while they work."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from django_app.models import StepAttempt, StepResult
from durable_celery import runtime
from tests.effects import effects
from tests.processes import Worker, eventually
from tests.project.testapp.case_clocks import meeting
from tests.project.testapp.workflows import sequence

pytestmark = [pytest.mark.kill, pytest.mark.prefork, pytest.mark.django_db(transaction=True)]

SHORT = {"TEST_DURABLE_CELERY": '{"LEASE": 2, "TICK": 0.2}'}


def test_a_worker_that_stands_still_with_a_result_in_hand_is_fenced_off(start_worker: Callable[..., Worker]) -> None:
    handle = sequence.start("stopped", 2)
    fault = {"DURABLE_CELERY_FAULT": "record.before:stop=12s"}
    stopped = start_worker(pool="solo", env=SHORT | fault, arguments=["-n", "stopped@%h"])
    eventually(lambda: "struck at record.before" in stopped.text(), "a worker that stands still", seconds=60)
    start_worker(pool="solo", env=SHORT, arguments=["-n", "other@%h"])
    assert handle.result(timeout=60) == ["step 0", "step 1"]

    def outcomes() -> list[str]:
        kept = StepAttempt.objects.filter(step__instance_id=handle.id).order_by("id")
        return list(kept.values_list("outcome", flat=True))

    eventually(lambda: outcomes() == ["lost", "superseded"], "the late end of the first attempt", seconds=60)
    assert effects("stopped") == {"step 0": 2, "step 1": 1}
    assert handle.result(timeout=0) == ["step 0", "step 1"]
    eventually(lambda: "was declared dead" in stopped.text(), "that it learns of its death", seconds=60)
    assert not stopped.ended()


def test_a_timer_waits_for_the_databases_clock_when_that_of_its_worker_is_set(
    start_worker: Callable[..., Worker],
) -> None:
    fault = {"DURABLE_CELERY_FAULT": "turn.begins:clock=30s; turn.begins:clock=-20m:3"}
    worker = start_worker(pool="solo", env=SHORT | fault)
    clock: Any = runtime.current().clock
    when = clock.measure() + timedelta(seconds=8)
    handle = meeting.start("meeting", when)
    eventually(lambda: "struck at turn.begins" in worker.text(), "a clock that was set", seconds=60)
    handle.signal("look at your clock")
    eventually(lambda: handle.status == "COMPLETED" or clock.measure() > when, "the time")
    ended = StepResult.objects.filter(instance_id=handle.id, kind="timer", state="SUCCEEDED")
    assert clock.measure() >= when or not ended.exists()
    assert handle.result(timeout=60) == "after"
    assert not ended.filter(finished_at__lt=when).exists()
    assert effects("meeting") == {"after": 1}
