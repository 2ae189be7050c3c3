"""Rows of one run as rows of a fork of it."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, TypeVar
from uuid import UUID

from django_app.models import Message, StepResult
from durable_celery.core import forking, journal
from durable_celery.core import transitions as t
from durable_celery.core.forking import Fork

M = TypeVar("M")

GRACE = timedelta(seconds=2)  # how long news may lie before the sweep asks for a turn


def step(row: StepResult, target: UUID, mode: str, now: datetime) -> StepResult:
    """A row of the journal, as it is or as it was when the fork begins; no attempt of it goes on."""
    row.pk, row.instance_id = None, target
    row._state.adding = True
    _set(row, token=None, lease_id=None, pid=None, close_at=None, heartbeat_at=None, look_at=None, resends=0)
    if row.kind == journal.CHILD:
        row.attempt = 0  # the child belongs to the other run
    if mode == forking.KEPT or (row.mapped and row.state in t.STEP_FINAL):
        return row
    _set(row, taken_turn=None, taken_order=0, taken_at=None, ended_turn=None)
    if mode == forking.GIVEN_UP:
        ended = row.state in t.STEP_FINAL
        return _set(row, abandoned=True, **({} if ended else {"state": t.CANCELLED, "finished_at": now}))
    row.abandoned = False
    if row.kind in (*journal.STEPS, journal.CHILD) and _has_ended(row):
        return _set(row, look_at=now + GRACE)
    return _open_again(row, now)


def message(row: Message, target: UUID, plan: Fork, now: datetime) -> Message:
    """A message that came before the fork begins; the last one is new there."""
    if row.pk == plan.news:
        _set(row, taken_turn=None, taken_order=0, taken_at=None, look_at=now + GRACE)
    row.pk, row.instance_id, row.chain_id = None, target, target
    row._state.adding = True
    if row.delivered_turn is not None and row.delivered_turn > plan.turn:
        row.delivered_turn = None
    return row


def _has_ended(row: StepResult) -> bool:
    """Whether its outcome is known, and was not made by giving it up."""
    return row.state == t.SUCCEEDED or (row.state == t.FAILED and not row.abandoned)


def _open_again(row: StepResult, now: datetime) -> StepResult:
    runs = row.kind in journal.STEPS
    held = runs and row.state == t.HELD
    look_at = row.due_at if row.kind in journal.WAITS else now if runs and not held else None
    if runs:
        _set(row, attempt=0, failures=0, deaths=0, expiries=0, due_at=None, start_by_at=None, end_by_at=None,
             started_at=None, last_heartbeat=None, unknown_end=False, scheduled_at=now)  # fmt: skip
    return _set(
        row, state=t.HELD if held else t.SCHEDULED, result=None, failure=None, finished_at=None, look_at=look_at
    )


def _set(row: M, **values: Any) -> M:
    for name, value in values.items():
        setattr(row, name, value)
    return row
