"""Atomic steps under kills. TEST_DICE=folder:probability lets pool processes kill themselves at fault points, by dice.

Each such kill leaves an empty file in the folder, `<point>-<number>`, before it strikes. The first process to have run
a body and not yet committed dies whatever the dice say: a claimed step surely dies in every run.
"""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import time
import uuid
from collections.abc import Callable
from pathlib import Path

from django.db import connection

from durable_celery import RetryPolicy, StepFailed, Workflow, current_step, faults, step, workflow
from tests.project.testapp.models import Effect
from tests.project.testapp.steps import FAST, note

ENTRIES = 2  # effects that one result stands for


@step(atomic=True, retry=FAST)
def transfer(run: str, number: int, seconds: float) -> str:
    """Two entries in the books, some time apart; without both, or with one twice, money was made or lost."""
    note(run, f"debit {number}")
    time.sleep(random.uniform(0, seconds))
    note(run, f"credit {number}")
    return current_step().idempotency_key


@workflow(name="case_atomic.transfers")
def transfers(run: str, count: int, seconds: float) -> Workflow[list[str]]:
    keys = []
    for number in range(count):
        keys.append((yield from transfer(run, number, seconds)))
    return keys


QUICK = RetryPolicy(initial_interval=0.1, backoff_coefficient=1.0, maximum_attempts=3, jitter=False)
SLEEPS = {"postgresql": "SELECT pg_sleep(%s)", "mysql": "SELECT SLEEP(%s)"}


@step(atomic=True, retry=QUICK, start_to_close_timeout=1)
def dawdle(run: str, times: int, where: str) -> int:
    """Outstays its limit on its first attempts, in Python or in the middle of a query, with a write behind it."""
    note(run, f"attempt {current_step().attempt}")
    if current_step().attempt <= times:
        if where == "query" and connection.vendor in SLEEPS:
            with connection.cursor() as cursor:
                cursor.execute(SLEEPS[connection.vendor], [8])
        else:
            time.sleep(20)
    effects: int = Effect.objects.filter(run=run).count()
    return effects


@workflow(name="case_atomic.dawdling", fails_on=StepFailed)
def dawdling(run: str, times: int, where: str) -> Workflow[int]:
    return (yield from dawdle(run, times, where))


SURE = "atomic.before_commit"


def _dice(given: str) -> Callable[[str], None]:
    folder, _, probability = given.rpartition(":")

    def throw(point: str) -> None:
        # The main process dies by the test's hand alone.
        if multiprocessing.current_process().name == "MainProcess":
            return
        if point == SURE and _is_first(Path(folder, f"{point}-first")):
            os.kill(os.getpid(), signal.SIGKILL)
        if random.random() < float(probability):
            Path(folder, f"{point}-{uuid.uuid4().hex}").touch()
            os.kill(os.getpid(), signal.SIGKILL)

    return throw


def _is_first(mark: Path) -> bool:
    try:
        mark.touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


if os.environ.get("TEST_DICE"):
    faults.set_hook(_dice(os.environ["TEST_DICE"]))
