"""List instances, the newest first."""

from __future__ import annotations

from argparse import ArgumentParser
from datetime import datetime, timezone
from typing import Any

from django.db.models import QuerySet

from django_app import looks, records, search, waiting
from django_app.models import WorkflowInstance
from django_app.verbs.console import Console, WrongUsage
from durable_celery.core import transitions as t

QUESTIONS = ("open", "closed", "retrying", "stuck")
MOST = 10**9  # more than any table has, and no database refuses the number
STATES = (*t.OPEN_STATES, t.PAUSED, *t.FINAL_STATES)


def arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--workflow", metavar="NAME", help="of this workflow only")
    parser.add_argument("--state", metavar="STATE", help=f"one of {', '.join((*STATES, *QUESTIONS))}; without it, of "
                        "instances that have gone on as new runs the newest alone")  # fmt: skip
    parser.add_argument("--key", metavar="BEGINNING", help="with a key that begins so")
    parser.add_argument("--limit", type=int, default=50, metavar="N", help="at most so many (50)")
    parser.add_argument("--json", action="store_true", help="one JSON document: a list of objects")


def run(options: Any, console: Console) -> int:
    rows = list(_chosen(options).order_by("-created_at").defer(*records.BIG)[: options.limit])
    told = waiting.told(rows, now=datetime.now(timezone.utc))
    found = [records.summary(row, told[row.pk].waits, told[row.pk].status) for row in rows]
    if options.json:
        console.document(found)
    elif not found:
        console.line("no instance")
    else:
        console.table(["ID", "WORKFLOW", "KEY", "STATE", "CREATED", "WAITING FOR"], [_cells(row) for row in found])
    return 0


def _chosen(options: Any) -> QuerySet[WorkflowInstance]:
    if not 1 <= options.limit <= MOST:
        raise WrongUsage(f"--limit is {options.limit}, expected a number from 1 to {MOST}")
    rows: QuerySet[WorkflowInstance] = WorkflowInstance.objects.all()
    if options.workflow:
        rows = search.by_name(rows, options.workflow)
    if options.key:
        rows = search.by_key(rows, options.key)
    return _in_state(rows, options.state) if options.state else rows.exclude(state=t.CONTINUED)


def _in_state(rows: Any, state: str) -> QuerySet[WorkflowInstance]:
    if state.lower() in QUESTIONS:
        found: QuerySet[WorkflowInstance] = getattr(rows, state.lower())()
        return found
    if state.upper() not in STATES:
        raise WrongUsage(f"--state is {state!r}, expected one of {', '.join((*STATES, *QUESTIONS))}")
    if state.upper() == t.PAUSED:
        return rows.open().filter(paused_at__isnull=False)  # type: ignore[no-any-return]
    return rows.filter(state=state.upper())  # type: ignore[no-any-return]


def _cells(row: dict[str, Any]) -> list[str]:
    created = looks.moment(row["created_at"])
    return [row["id"], row["workflow"], row["key"] or "", row["state"], created, _rest(row)]


def _rest(row: dict[str, Any]) -> str:
    text = str(row["waiting_for"] or row["status"])
    return text if len(text) <= 100 else text[:99] + "…"
