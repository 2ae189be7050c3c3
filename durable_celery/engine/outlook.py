"""What an instance waits for, in words. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from durable_celery.core import identity, journal, transitions
from durable_celery.core.failure import Failure
from durable_celery.engine.verdicts import terms_of
from durable_celery.ports import InstanceRow, OpenStep

SHOWN = 5


def shown_state(row: InstanceRow) -> str:
    """The state people see: PAUSED over any open one."""
    return transitions.PAUSED if row.paused_at is not None and row.state in transitions.OPEN_STATES else row.state


def waiting_for(row: InstanceRow, steps: Sequence[OpenStep], now: datetime) -> str:
    """On what, since and until when.

    Empty once closed. Rows say more than the last turn did: attempts, errors, queues.
    """
    if row.state in transitions.FINAL_STATES:
        return ""
    if row.state == transitions.BLOCKED:
        return row.waiting_for
    if row.state == transitions.PENDING:
        if row.waiting_for:
            return row.waiting_for
        return (
            f"its start at {_at(row.start_at)}"
            if row.start_at > now
            else f"a worker to take its first turn, since {_at(row.created_at)}"
        )
    leaves = [step for step in steps if step.kind not in journal.COMPOSITES and step.state != transitions.HELD]
    if not leaves or row.waiting_for.startswith("a worker that knows"):
        return row.waiting_for
    words = "; ".join(_words(step, now) for step in leaves[:SHOWN])
    return words if len(leaves) <= SHOWN else f"{words}; and {len(leaves) - SHOWN} more"


def attempt_of(step: OpenStep) -> str:
    """``attempt 2 of 5``; the first number counts starts."""
    terms = terms_of(step.options)
    most = terms.retry.maximum_attempts if terms.task is None else 0  # an existing task counts by its own rules
    return f"attempt {step.attempt} of {most}" if most else f"attempt {step.attempt}"


def _words(step: OpenStep, now: datetime) -> str:
    try:
        return _step(step, now)
    except ValueError:  # a row somebody has written by hand; whoever looks shall see it, not an error page
        return f"{step.kind} {step.name} at {step.position}, whose options cannot be read: {step.options!r:.60}"


def _step(step: OpenStep, now: datetime) -> str:
    since = f"since {_at(step.scheduled_at)}"
    until = _until(step.due_at)
    if step.kind == journal.TIMER:
        return f"sleep at {step.position}, {since}{until}"
    if step.kind == journal.SIGNAL:
        return f"signal {step.name!r} at {step.position}, {since}{until}"
    if step.kind == journal.CONDITION:
        return f"condition at {step.position}, {since}{until}"
    if step.kind == journal.POLL:
        return _poll(step, since)
    if step.kind == journal.MAP:
        return f"{_map(step)}, {since}"
    what = f"{step.kind} {step.name} at {step.position}"
    if step.kind == journal.CHILD:
        child = f"{what} ({identity.child_id(step.instance_id, step.position)})"
        return f"{child}, {'given up, ' if step.state == transitions.ABANDONED else ''}{since}"
    if step.state == transitions.RUNNING:
        end = _until(step.close_at, step.end_by_at)
        return f"{what}, {attempt_of(step)}, running since {_at(step.started_at)}{end}"
    if step.state == transitions.RETRYING:
        error = f" after {Failure.from_text(step.failure).brief}" if step.failure else ""
        return f"{what}, {attempt_of(step)} is over{error}, the next at {_at(step.due_at)}{_until(step.end_by_at)}"
    if step.state == transitions.EXTERNAL:
        end = _until(step.close_at, step.end_by_at)
        return f"{what}, to be completed from outside, since {_at(step.started_at)}{end}"
    if step.state == transitions.ABANDONED:
        return f"{what}, abandoned, running since {_at(step.started_at)}"
    return f"{what}, in the queue {since}{_until(step.start_by_at, step.end_by_at)}"


def _until(*ends: datetime | None) -> str:
    """The earliest of them, as the end of a sentence."""
    end = min((end for end in ends if end is not None), default=None)
    return "" if end is None else f", until {_at(end)}"


def _poll(step: OpenStep, since: str) -> str:
    what = f"poll of step {step.name} at {step.position}, {since}"
    over = _until(step.end_by_at)
    if step.state == transitions.RUNNING:
        return f"{what}{over}: start {step.attempt} is running since {_at(step.started_at)}"
    if step.state == transitions.RETRYING:
        why = (
            f"start {step.attempt} ended in {Failure.from_text(step.failure).brief}"
            if step.failure
            else (f"the result of start {step.attempt} is not what it waits for")
        )
        return f"{what}{over}: {why}, the next at {_at(step.due_at)}"
    if step.state == transitions.EXTERNAL:
        return f"{what}{over}: to be completed from outside"
    return f"{what}{over}: in the queue"


def _map(step: OpenStep) -> str:
    far = step.progress
    if far is None:
        return f"map of {step.name} at {step.position}"
    failed = f" ({far.failed:,} failed)" if far.failed else ""
    return f"map at {step.position}, {far.ended:,} of {far.members:,} ended{failed}"


def _at(when: datetime | None) -> str:
    return f"{when:%Y-%m-%d %H:%M:%S} UTC" if when is not None else "?"
