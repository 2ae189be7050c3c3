"""What the cases about clocks need in worker processes.

TEST_CLOCK_SKEW   seconds by which the clock of this process is wrong
"""

from __future__ import annotations

import os
from datetime import datetime, timedelta, timezone

from durable_celery import Workflow, sleep_until, workflow
from durable_celery.runtime import Clock
from tests.project.testapp.steps import say

SKEW = timedelta(seconds=float(os.environ.get("TEST_CLOCK_SKEW", "0")))


@workflow
def meeting(run: str, when: datetime) -> Workflow[str]:
    yield from sleep_until(when)
    return (yield from say(run, "after"))


def wrong(clock: Clock) -> datetime:
    return datetime.now(timezone.utc) + SKEW


if SKEW:
    Clock.local = wrong  # type: ignore[method-assign, assignment]
