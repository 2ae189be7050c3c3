"""Show one instance."""

from __future__ import annotations

from argparse import ArgumentParser
from datetime import datetime, timezone
from typing import Any

from django_app import records, waiting
from django_app.looks import moment
from django_app.verbs.console import Console
from django_app.verbs.target import add_target, target
from durable_celery.codec import preview


def arguments(parser: ArgumentParser) -> None:
    add_target(parser)
    parser.add_argument("--json", action="store_true", help="one JSON document: an object")


def run(options: Any, console: Console) -> int:
    instance = target(options)
    waits = waiting.words([instance], now=datetime.now(timezone.utc), errors=True)
    record = records.whole(instance, waits[instance.pk])
    if options.json:
        console.document(record)
        return 0
    error = record.pop("error")
    for name, value in record.items():
        if value not in (None, "", {}):
            console.line(f"{name.replace('_', ' ') + ':':14}{_text(value)}")
    if error:
        console.line(f"{'error:':14}{error['type']}: {error['message']}")
        console.line(error["traceback"])
    return 0


def _text(value: Any) -> str:
    if hasattr(value, "isoformat"):
        return moment(value)
    return value if isinstance(value, str) else preview(value, 2_000)
