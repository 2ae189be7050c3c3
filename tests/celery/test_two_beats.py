"""Two Beats side by side, one of them killed and started again: one instance for each slot of the schedule."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from django_app.models import WorkflowInstance
from tests import processes
from tests.processes import eventually
from tests.project.testapp.workflows import sequence

pytestmark = [pytest.mark.kill, pytest.mark.prefork, pytest.mark.django_db(transaction=True)]

EVERY = timedelta(seconds=2)
SCHEDULE = {
    "every two seconds": {
        "task": sequence.name,
        "schedule": EVERY.total_seconds(),
        "args": ["beat", 1],
    }
}


def slots() -> list[datetime]:
    found = WorkflowInstance.objects.filter(name=sequence.name).values_list("memo__slot", flat=True)
    return sorted(datetime.fromisoformat(slot) for slot in found)


def run(start_worker: Callable[..., Any], folder: Path, wanted: int) -> list[datetime]:
    """Slots started while one Beat runs and another is killed at every third slot and started again."""
    env = {"TEST_CELERY": json.dumps({"beat_schedule": SCHEDULE})}
    start_worker()
    beats = [processes.start_beat(folder / f"beat{number}.log", env=env) for number in range(2)]
    try:
        for count in range(3, wanted + 1, 3):
            wait_for(count)
            beats[1].kill()
            beats[1] = processes.start_beat(folder / f"beat-again{count}.log", env=env)
        return slots()
    finally:
        for beat in beats:
            beat.clear()


def wait_for(count: int) -> None:
    eventually(lambda: len(slots()) >= count, f"{count} slots", seconds=60)


def gaps(found: list[datetime]) -> set[timedelta]:
    return {later - earlier for earlier, later in pairwise(found)}


def test_two_beats_one_of_them_killed_again_and_again_start_one_instance_a_slot(
    start_worker: Callable[..., Any], tmp_path: Path
) -> None:
    found = run(start_worker, tmp_path, 6)
    assert len(found) == len(set(found)) >= 6
    assert gaps(found) == {EVERY}


@pytest.mark.nightly
def test_two_beats_over_a_minute_start_one_instance_a_slot(start_worker: Callable[..., Any], tmp_path: Path) -> None:
    found = run(start_worker, tmp_path, 30)
    assert len(found) == len(set(found)) >= 30
    assert gaps(found) == {EVERY}
    print(f"two beats: {len(found)} slots, {len(found)} instances, 0 missed, 0 doubled")
