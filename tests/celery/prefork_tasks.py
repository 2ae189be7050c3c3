"""Existing tasks that run in the processes of a worker, and leave a line in a file for each thing that happens."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from celery import shared_task, signals
from celery.exceptions import SoftTimeLimitExceeded

from tests.project.testapp.models import Effect


def note(path: str, what: str) -> None:
    with open(path, "a") as file:
        file.write(f"{what} {os.getpid()}\n")


def noted(path: str) -> list[str]:
    """What was noted, without the processes."""
    file = Path(path)
    return [line.split()[0] for line in file.read_text().splitlines()] if file.exists() else []


def processes(path: str) -> list[int]:
    return [int(line.split()[1]) for line in Path(path).read_text().splitlines()]


def watch(name: str) -> None:
    """Note a signal in the file that is the first argument of the task it is about."""

    def receiver(sender: Any = None, **_: Any) -> None:
        request = getattr(sender, "request", None)
        path = os.environ.get("TEST_SIGNALS")
        if path and request is not None and sender.name != "durable_celery.tick":
            note(path, f"{name}:{sender.name}:{sender.request.retries}")

    getattr(signals, name).connect(receiver, weak=False)


for signal in ("task_prerun", "task_success", "task_retry", "task_failure", "task_postrun"):
    watch(signal)


@shared_task(bind=True, name="tests.prefork.persistent")
def persistent(self: Any, path: str, retries: int) -> int:
    note(path, "ran")
    Effect.objects.create(run=self.request.id, what=f"retry {self.request.retries}", key="")
    if self.request.retries < retries:
        raise self.retry(countdown=0.1)
    return int(self.request.retries)


@shared_task(name="tests.prefork.endless", time_limit=1)
def endless(path: str) -> None:
    note(path, "ran")
    time.sleep(60)


@shared_task(name="tests.prefork.tidy", soft_time_limit=1)
def tidy(path: str) -> str:
    note(path, "ran")
    try:
        time.sleep(60)
    except SoftTimeLimitExceeded:
        note(path, "tidied")
        time.sleep(4)  # no hard limit, so nobody is killed
        return "tidied up"
    return "late"


@shared_task(name="tests.prefork.routed")
def routed(path: str) -> str:
    note(path, "ran")
    return "there"


@shared_task(name="tests.prefork.mortal")
def mortal(path: str) -> str:
    """Its process dies the first time."""
    note(path, "ran")
    if len(noted(path)) == 1:
        os.kill(os.getpid(), 9)
    return "alive"
