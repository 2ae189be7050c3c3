"""Steps that leave a trace: an `Effect` row for each execution."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from durable_celery import NonRetryable, RetryPolicy, current_step, step
from tests.project.testapp.models import Effect

FAST = RetryPolicy(initial_interval=0.2, backoff_coefficient=1.0, maximum_attempts=4, jitter=False)


def note(run: str, what: str) -> None:
    Effect.objects.create(run=run, what=what, key=current_step().idempotency_key)


@step
def say(run: str, what: str) -> str:
    note(run, what)
    return what


@step
def undo(result: str | None, run: str, what: str) -> None:
    note(run, f"undo {what} of {result}")


@step(retry=FAST)
def flaky(run: str, what: str, failures: int) -> int:
    """Fails on its first `failures` attempts, then returns the number of the attempt."""
    note(run, what)
    if current_step().attempt <= failures:
        raise RuntimeError(f"no luck at attempt {current_step().attempt}")
    return current_step().attempt


@step(retry=FAST)
def hopeless(run: str, what: str) -> None:
    note(run, what)
    raise NonRetryable("never")


@step
def linger(run: str, what: str, gate: str, seconds: float = 60) -> str:
    """Runs until the file `gate` exists, or `seconds` have passed."""
    note(run, what)
    deadline = time.monotonic() + seconds
    while not Path(gate).exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    return what


@step(retry=FAST)
def die(run: str, marks: str, deaths: int) -> int:
    """Kills its own process on its first `deaths` executions, counted by files in the folder `marks`."""
    note(run, "die")
    so_far = len(list(Path(marks).iterdir()))
    if so_far < deaths:
        Path(marks, str(so_far)).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return so_far
