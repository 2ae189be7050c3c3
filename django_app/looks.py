"""How states and times look to people, on pages and in terminals alike."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

from django.utils import timezone

from durable_celery.core import journal
from durable_celery.core import transitions as t
from durable_celery.runtime import settings

# The colour of a state: one of good, failed, busy, waiting, off, undo. ``static/durable_celery/admin.css`` has them.
LOOKS = {
    t.PENDING: "waiting",
    t.RUNNING: "busy",
    t.WAITING: "waiting",
    t.PAUSED: "waiting",
    t.BLOCKED: "failed",
    t.COMPENSATING: "undo",
    t.COMPLETED: "good",
    t.FAILED: "failed",
    t.CANCELLED: "off",
    t.TERMINATED: "off",
    t.CONTINUED: "off",
    t.HELD: "off",
    t.SCHEDULED: "waiting",
    t.RETRYING: "waiting",
    t.EXTERNAL: "waiting",
    t.ABANDONED: "off",
    t.SUCCEEDED: "good",
}


def state_of(instance: Any) -> str:
    """The state people see: PAUSED lies over any open one."""
    paused = instance.paused_at is not None and instance.state in t.OPEN_STATES
    return t.PAUSED if paused else str(instance.state)


def step_state_of(step: Any) -> str:
    """The state people see: ABANDONED while a step runs that nobody waits for any more."""
    return t.ABANDONED if step.abandoned and step.state in t.CLAIMED else str(step.state)


def attempts_of(step: Any) -> str:
    """``attempt 2 of 5``; of a step that never started, and of what makes no attempts, nothing."""
    if not step.attempt:
        return ""
    if step.kind == journal.POLL:
        return f"start {step.attempt}"  # each run of it has the attempts of the step afresh
    most = options_of(step).get("retry", {}).get("maximum_attempts")
    # Deaths and RetryLater add starts that do not count, so the number may be over the limit.
    return f"attempt {step.attempt}" + (f" of {most}" if most else ", no limit" if most == 0 else "")


def options_of(step: Any) -> dict[str, Any]:
    """The policy and time-outs as they were at scheduling; empty if there are none, or none that can be read."""
    try:
        options = json.loads(step.options or "{}")
    except ValueError:
        return {}
    return options if isinstance(options, dict) else {}


def long_history(instance: Any) -> str:
    """What to say of an open run whose journal has passed ``HISTORY_WARN``; empty of any other."""
    limits = settings()
    if instance.state not in t.OPEN_STATES or instance.history_length < limits.history_warn:
        return ""
    return (
        f"long history: {instance.history_length:,} rows, HISTORY_WARN is {limits.history_warn:,}, at "
        f"{limits.history_limit:,} it is BLOCKED; let the body continue_as_new"
    )


def moment(when: datetime | None) -> str:
    """``2026-11-29 17:37:02`` in the reader's time zone."""
    return f"{timezone.localtime(when):%Y-%m-%d %H:%M:%S}" if when is not None else ""
