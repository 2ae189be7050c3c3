"""Existing Celery tasks, as a project had them before."""

from __future__ import annotations

import time
from typing import Any

from celery import shared_task

from tests.chaos import ledger


@shared_task(bind=True, name="chaos.add")
def add(self: Any, number: int, run: str, what: str, seconds: float = 0.0) -> int:
    ledger.write(run, what, self.request.id, 0)
    time.sleep(seconds)
    return number + 1


@shared_task(bind=True, name="chaos.persist", max_retries=5)
def persist(self: Any, number: int, run: str, what: str) -> int:
    """Asks to be retried once."""
    ledger.write(run, what, self.request.id, 0)
    if self.request.retries < 1:
        raise self.retry(countdown=0.2)
    return number + 1
