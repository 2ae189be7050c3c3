"""Show the journal of one instance: what it did, in order."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django_app import records
from django_app.looks import moment
from django_app.models import StepResult
from django_app.timeline import words
from django_app.verbs.console import Console
from django_app.verbs.target import add_target, target
from durable_celery.codec import preview
from durable_celery.core.identity import sort_key
from durable_celery.core.labels import is_storable


def arguments(parser: ArgumentParser) -> None:
    add_target(parser)
    parser.add_argument("--of", default="", metavar="POSITION", help="instead, the members of the map at this position")
    parser.add_argument("--json", action="store_true", help="one JSON document: a list of objects")


def run(options: Any, console: Console) -> int:
    instance = target(options)
    steps = sorted(_rows(instance, options.of), key=lambda step: sort_key(step.position))
    found = records.entries(instance, steps)
    if options.json:
        console.document(found)
    elif not found:
        console.line("nothing yet")
    else:
        console.table(["AT", "WHAT", "STATE", "ATTEMPTS", "SCHEDULED", "TOOK", "RESULT"], [_row(e) for e in found])
    return 0


def _rows(instance: Any, of: str) -> Any:
    """The journal, in which a map is one row; or the members of one."""
    rows = StepResult.objects.filter(instance=instance, mapped=bool(of))
    if not is_storable(of):
        return rows.none()
    return rows.filter(group=of) if of else rows


def _row(entry: dict[str, Any]) -> list[str]:
    start, end = entry["started_at"] or entry["scheduled_at"], entry["finished_at"]
    what = entry["name"] if entry["kind"] == "step" else f"{entry['kind']} {entry['name']}".strip()
    error = entry["error"]
    return [
        entry["position"],
        what,
        entry["state"],
        str(entry["attempts"] or ""),
        moment(entry["scheduled_at"]),
        words(end - start) if end else "",
        f"{error['type']}: {error['message']}"[:100] if error else _shown(entry["result"]),
    ]


def _shown(result: Any) -> str:
    return "" if result is None else preview(result, 80)
