"""From table rows to the values of ``ports`` and ``core.journal``."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from django_app.models import StepResult
from durable_celery.core import journal
from durable_celery.core import transitions as t
from durable_celery.ports import Dispatch, InstanceRow, OpenStep

BIG = ("args", "result", "failure")

INSTANCE_FIELDS = (
    "id", "chain_id", "run_number", "name", "version", "key", "state", "revision", "turn", "turn_at", "args", "result",
    "failure", "waiting_for", "status_text", "blocked_by", "left_at", "closing_as", "paused_at", "created_at",
    "start_at", "started_at", "finished_at", "deadline_at", "queue", "priority", "parent_id", "parent_position",
    "attributes", "context", "turn_deaths", "turn_begun_at", "cancel_requested_at",
)  # fmt: skip
SWEPT_INSTANCE_FIELDS = tuple(name for name in INSTANCE_FIELDS if name not in BIG)

STEP_FIELDS = (
    "id", "instance_id", "position", "kind", "name", "state", "options", "attempt", "failures", "deaths", "expiries",
    "resends", "token", "lease_id", "pid", "queue", "join", "group", "limited", "scheduled_at", "started_at", "due_at",
    "start_by_at", "end_by_at", "close_at", "heartbeat_at", "look_at", "unknown_end", "failure",
)  # fmt: skip

MESSAGE_FIELDS = ("id", "kind", "name", "payload", "stored_at", "taken_turn", "taken_order", "taken_at", "answered")

DISPATCH_FIELDS = ("id", "name", "queue", "state", "due_at", "options")

DISPATCHED = journal.RUNS


def instance_row(values: Mapping[str, Any]) -> InstanceRow:
    """An instance; of a sweep, whose rows come without them, the big texts are empty."""
    fields = {"args": "", "result": None, "failure": None, **values}
    fields["blocked_by"] = tuple(fields["blocked_by"].split())
    return InstanceRow(**fields)


def open_step(values: tuple[Any, ...]) -> OpenStep:
    """A step row read with STEP_FIELDS."""
    fields = dict(zip(STEP_FIELDS, values, strict=True))
    fields["join"] = fields["join"] or ""
    fields["group"] = fields["group"] or ""
    return OpenStep(**fields)


def message(values: tuple[Any, ...]) -> journal.Message:
    """A message read with MESSAGE_FIELDS."""
    return journal.Message(**dict(zip(MESSAGE_FIELDS, values, strict=True)))


# -- dispatching ---------------------------------------------------------------------------------------------------


def dispatch(pk: int, name: str, queue: str, state: str, due_at: Any, options: str) -> Dispatch:
    """What a message needs; a due time counts of a row that is tried again."""
    priority, close_after, look_after, task = _terms(options)
    return Dispatch(
        step_id=pk, name=name, queue=queue, priority=priority, due_at=due_at if state == t.RETRYING else None,
        close_after=close_after, look_after=look_after, task=task,
    )  # fmt: skip


def dispatch_of(row: StepResult) -> Dispatch:
    """What a message needs of a row just inserted or let go."""
    return dispatch(row.pk, row.name, row.queue, row.state, row.due_at, row.options)


@lru_cache(maxsize=1024)
def _terms(options: str) -> tuple[int | None, float | None, float | None, str]:
    """Priority, seconds an attempt may take, seconds after the claim at which the sweep must look for a heartbeat, and
    the name an existing Celery task is routed by."""
    data: dict[str, Any] = json.loads(options) if options else {}
    task = data.get("task", {}).get("route", "")
    return data.get("priority"), data.get("start_to_close"), data.get("heartbeat"), task
