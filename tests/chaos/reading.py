"""Reads the books of a run, through a connection that others may cut at any time."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from django.db import DatabaseError, InterfaceError, connection
from django.db.models import Count

from django_app import vitals
from django_app.models import StepAttempt, StepResult, WorkflowInstance
from durable_celery import InstanceClosed, UpdateRejected, get_handle
from durable_celery.core import transitions as t
from tests.chaos import ledger
from tests.chaos.oracle import ACCEPTED, CLOSED, Books, Run, Sent, Step
from tests.chaos.plan import Start
from tests.chaos.steps import book
from tests.project.testapp.models import Effect

T = TypeVar("T")
AT_WORK = (t.RUNNING, t.ABANDONED)


def calmly(read: Callable[[], T], *, seconds: float = 30) -> T:
    """Try again while the database is away or cuts us off."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            return read()
        except (DatabaseError, InterfaceError):
            connection.close()
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)


def claims() -> dict[int, list[tuple[str, int]]]:
    """By process: what it runs now, and at which attempt; nothing while the database does not answer."""
    found: dict[int, list[tuple[str, int]]] = defaultdict(list)
    rows = StepResult.objects.filter(state__in=AT_WORK, pid__isnull=False)
    try:
        for instance_id, position, pid, attempt in rows.values_list("instance_id", "position", "pid", "attempt"):
            found[pid].append((f"{instance_id}:{position}", attempt))
    except (DatabaseError, InterfaceError):
        connection.close()
        return {}
    return found


def open_instances() -> int:
    return int(calmly(lambda: WorkflowInstance.objects.filter(state__in=t.OPEN_STATES).count()))


def at_work() -> int:
    """Attempts that are claimed, wanted or not."""
    return int(calmly(lambda: StepResult.objects.filter(state__in=AT_WORK).count()))


def progress() -> tuple[int, ...]:
    """Changes whenever anything goes on."""
    return calmly(
        lambda: (
            WorkflowInstance.objects.filter(state__in=t.OPEN_STATES).count(),
            StepResult.objects.filter(state__in=t.STEP_FINAL).count(),
            StepAttempt.objects.count(),
        )
    )


def without_waker() -> set[str]:
    """Open instances that wait for nothing, in words; none while the database does not answer."""
    try:
        rows = list(vitals.without_waker().values_list("id", "name", "state")[:20])
    except (DatabaseError, InterfaceError):
        connection.close()
        return set()
    return {f"{name} {pk} is {state} and waits for nothing" for pk, name, state in rows}


def read(folder: Path, starts: Sequence[Start]) -> Books:
    return calmly(lambda: _read(folder, starts), seconds=60)


def _read(folder: Path, starts: Sequence[Start]) -> Books:
    sent = _sent(folder / "sent")
    newest: dict[str, dict[Any, WorkflowInstance]] = defaultdict(dict)
    for row in WorkflowInstance.objects.filter(key__isnull=False).order_by("run_number"):
        newest[str(row.key)][row.chain_id] = row
    steps = StepResult.objects.values_list("instance_id", "position", "name", "state", "attempt")
    effects = Effect.objects.exclude(key="").values_list("key").annotate(count=Count("pk"))
    return Books(
        runs=[_run(start, list(newest[start.run].values()), sent[start.run]) for start in starts],
        lines=ledger.lines(folder / "ledger"),
        steps={
            f"{instance_id}:{position}": Step(state=state, attempt=attempt, atomic=name == book.name)
            for instance_id, position, name, state, attempt in steps
        },
        effects=dict(effects),
        open_rows=_open_rows(),
    )


def _run(start: Start, rows: Sequence[WorkflowInstance], sent: Sequence[dict[str, Any]]) -> Run:
    row = rows[0] if len(rows) == 1 else None
    handle = get_handle(row.chain_id) if row is not None else None
    messages = [_message(one, start.run, handle) for one in sent if one["kind"] != "start"]
    return Run(
        run=start.run,
        script=start.script,
        args=start.args,
        states=[str(row.state) for row in rows],
        result=handle.result() if handle is not None and row is not None and row.state == t.COMPLETED else None,
        about="" if row is None else row.failure or row.waiting_for,
        sent=messages,
    )


def _message(one: dict[str, Any], run: str, handle: Any) -> Sent:
    answer = None
    if one["kind"] == "update" and one["outcome"] == ACCEPTED and handle is not None:
        try:
            answer = handle.update("take", one["number"], update_id=f"{run} {one['number']}", timeout=0)
        except (InstanceClosed, UpdateRejected):
            answer = CLOSED
        except TimeoutError:
            answer = None
    return Sent(kind=one["kind"], number=one["number"], outcome=one["outcome"], unsure=one["unsure"], answer=answer)


def _sent(path: Path) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for one in ledger.read(path):
        found[one["run"]].append(one)
    return found


def _open_rows() -> list[str]:
    """Children and others that are open, and rows that stay claimed, when everything should have ended."""
    instances = WorkflowInstance.objects.filter(state__in=t.OPEN_STATES).values_list("name", "id", "state")
    steps = StepResult.objects.filter(state__in=AT_WORK).values_list("instance_id", "position", "name", "state")
    return [
        *(f"{name} {pk} is {state}" for name, pk, state in instances),
        *(f"{name} at {position} of {pk} is still {state}" for pk, position, name, state in steps),
    ]
