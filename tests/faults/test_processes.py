"""DURABLE_CELERY_FAULT: what becomes of a process that is told so from outside."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

REACH_THRICE = """
import time
from durable_celery import faults
for count in range(1, 4):
    began = time.monotonic()
    faults.reach("turn.begins")
    faults.reach("turn.before_commit")
    print(count, round(time.monotonic() - began, 2), flush=True)
"""


def reach_thrice(fault: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "DURABLE_CELERY_FAULT": fault}
    return subprocess.run(
        [sys.executable, "-c", REACH_THRICE], env=environment, capture_output=True, text=True, check=False, timeout=100
    )


def passed(ended: subprocess.CompletedProcess[str]) -> list[str]:
    return [line.split()[0] for line in ended.stdout.splitlines()]


@pytest.mark.parametrize(
    ("fault", "lived"),
    [
        ("turn.before_commit:kill", []),
        ("turn.before_commit:kill:3", ["1", "2"]),
        ("body.before:kill; turn.*:kill:4+", ["1"]),
        ("app.nowhere:kill", ["1", "2", "3"]),
    ],
)
def test_a_process_is_killed_at_the_point_it_was_told(fault: str, lived: list[str]) -> None:
    ended = reach_thrice(fault)
    assert passed(ended) == lived
    assert ended.returncode == (0 if len(lived) == 3 else -signal.SIGKILL)


def test_a_process_stands_still_and_is_waked_up() -> None:
    ended = reach_thrice("turn.begins:stop=400ms:2")
    assert ended.returncode == 0, ended.stderr
    assert passed(ended) == ["1", "2", "3"]
    took = [float(line.split()[1]) for line in ended.stdout.splitlines()]
    assert took[1] >= 0.4
    assert "fault turn.begins:stop=400ms:2 struck at turn.begins" in ended.stderr


def test_a_process_that_is_told_nonsense_does_not_start() -> None:
    ended = reach_thrice("turn.befor_commit:kill")
    assert (ended.returncode, ended.stdout) == (1, "")
    last = ended.stderr.splitlines()[-1]
    assert last.startswith("ValueError: DURABLE_CELERY_FAULT: 'turn.befor_commit:kill' is no fault: there is no point")
    assert "(but turn.before_commit" in last
    assert "Expected POINT:KIND[=DURATION][:WHEN]" in last
