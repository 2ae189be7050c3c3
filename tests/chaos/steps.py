"""What the workflows of the chaos suite do to the world. Every body first writes down that it runs."""

from __future__ import annotations

import time

from durable_celery import NonRetryable, RetryPolicy, current_step, step
from tests.chaos import ledger
from tests.project.testapp.models import Effect

# A database that is away fails an atomic body, and that as often as it is away.
PATIENT = RetryPolicy(initial_interval=0.2, backoff_coefficient=1.5, maximum_interval=1, maximum_attempts=0)
ENTRIES = 2  # rows of one result of an atomic step


def note(run: str, what: str) -> None:
    ledger.write(run, what, current_step().idempotency_key, current_step().attempt)


@step(retry=PATIENT)
def work(run: str, what: str, seconds: float = 0.0) -> str:
    note(run, what)
    time.sleep(seconds)
    return what


@step(retry=PATIENT)
def shaky(run: str, what: str, failures: int) -> str:
    """Fails at its first attempts."""
    note(run, what)
    if current_step().attempt <= failures:
        raise RuntimeError(f"no luck at attempt {current_step().attempt}")
    return what


@step(retry=None, on_lost="fail")
def once(run: str, what: str, seconds: float) -> str:
    """Runs at most once, whatever happens to its process."""
    note(run, what)
    time.sleep(seconds)
    return what


@step(retry=PATIENT)
def charge(run: str, what: str, seconds: float) -> str:
    note(run, what)
    time.sleep(seconds)
    return what


@step(retry=PATIENT)
def give_back(result: str | None, run: str, what: str) -> None:
    note(run, f"undo {what}")


@step(retry=PATIENT)
def refuse(run: str) -> None:
    note(run, "refuse")
    raise NonRetryable("the carrier refuses")


@step(retry=PATIENT, atomic=True)
def book(run: str, what: str, seconds: float) -> str:
    """Two rows in one transaction with the step's result."""
    note(run, what)
    for side in ("debit", "credit"):
        Effect.objects.create(run=run, what=f"{side} {what}", key=current_step().idempotency_key)
        time.sleep(seconds / ENTRIES)
    return what


@step(retry=PATIENT)
def mapped(item: list[object]) -> str:
    run, number = item
    note(str(run), f"item {number}")
    return f"item {number}"
