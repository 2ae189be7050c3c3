"""Fault points: named places where a test may stop or kill a process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from durable_celery import faults

REACH_THRICE = """
from durable_celery import faults
for count in range(1, 4):
    faults.reach("turn.other")
    faults.reach("turn.before_commit")
    print(count, flush=True)
"""


def reach_thrice(fault: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "DURABLE_CELERY_FAULT": fault}
    return subprocess.run(
        [sys.executable, "-c", REACH_THRICE], env=environment, capture_output=True, text=True, check=False, timeout=60
    )


@pytest.mark.parametrize(
    ("fault", "passed"), [("turn.before_commit:kill", []), ("turn.before_commit:kill:3", ["1", "2"])]
)
def test_a_process_is_killed_at_the_point_it_was_told(fault, passed):
    ended = reach_thrice(fault)
    assert ended.returncode == -signal.SIGKILL
    assert ended.stdout.split() == passed


def test_a_process_that_never_reaches_the_point_lives():
    assert reach_thrice("nowhere:kill").stdout.split() == ["1", "2", "3"]


@pytest.mark.parametrize("fault", ["turn", "turn:stop", ":kill", "turn:kill:x"])
def test_a_fault_of_another_form_is_refused_with_the_form(fault):
    with pytest.raises(ValueError, match='is not of the form "name:kill"'):
        faults.killer(fault)


def test_a_hook_sees_each_point_until_it_is_taken_away():
    seen: list[str] = []
    faults.set_hook(seen.append)
    faults.reach("a")
    faults.set_hook(None)
    faults.reach("b")
    assert seen == ["a"]
