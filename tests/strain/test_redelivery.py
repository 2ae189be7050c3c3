"""Redis with a visibility time-out of 3 s that restores fast: what is handed out a second time runs no step again."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from django_app.models import StepAttempt, StepResult
from tests.broker import redis_unacknowledged, waiting_messages
from tests.effects import effects
from tests.processes import Worker, eventually
from tests.project.testapp.workflows import lingering, sequence

pytestmark = [
    pytest.mark.prefork,
    pytest.mark.django_db(transaction=True),
    pytest.mark.timeout(300),
    pytest.mark.on("postgres", "sqlite", "mariadb", "redis"),
]

VISIBILITY = {"visibility_timeout": 3, "unacked_restore_interval": 1, "unacked_restore_throttle": 1}
ENV = {
    "TEST_BROKER_OPTIONS": json.dumps(VISIBILITY),
    "TEST_CELERY": json.dumps({"worker_prefetch_multiplier": 20}),
}
HELD = 6


def test_messages_that_a_busy_worker_holds_go_to_another_and_their_second_copy_does_nothing(
    start_worker: Callable[..., Any], tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    busy = start_worker(concurrency=1, env=ENV, arguments=["-n", "busy@host"])
    slow = lingering.start("slow", str(gate), seconds=240)
    eventually(lambda: effects("slow")["lingering"] == 1, "a body that fills the worker", seconds=60)
    handles: list[Any] = sequence.start_many([("held", 2)] * HELD)
    eventually(lambda: redis_unacknowledged() >= HELD, "messages that the busy worker holds", seconds=60)
    other = start_worker(concurrency=2, env=ENV, arguments=["-n", "other@host"])
    assert [handle.result(timeout=120) for handle in handles] == [["step 0", "step 1"]] * HELD
    eventually(lambda: received(busy) & received(other), "one message handed out twice", seconds=60)
    assert slow.status == "WAITING", "the first is busy all the while"
    gate.touch()
    assert slow.result(timeout=60) == "done"
    eventually(lambda: waiting_messages() == 0 and redis_unacknowledged() == 0, "an empty broker", seconds=90)
    assert effects("held") == {"step 0": HELD, "step 1": HELD}
    assert effects("slow") == {"lingering": 1, "done": 1}
    assert set(StepResult.objects.filter(kind="step").values_list("attempt", "deaths")) == {(1, 0)}
    assert not StepAttempt.objects.exists()


def received(worker: Worker) -> set[str]:
    """The ids of the messages it was given, by its log."""
    return set(re.findall(r"\[([0-9a-f-]{36})\] received", worker.text()))
