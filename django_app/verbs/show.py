"""Show one instance."""

from __future__ import annotations

from argparse import ArgumentParser
from datetime import datetime, timezone
from typing import Any

from django_app import bench, records, waiting
from django_app.looks import moment
from django_app.models import WorkflowInstance
from django_app.verbs.console import Console
from django_app.verbs.target import add_target, target
from durable_celery.codec import preview


def arguments(parser: ArgumentParser) -> None:
    add_target(parser)
    parser.add_argument("--json", action="store_true", help="one JSON document: an object")


def run(options: Any, console: Console) -> int:
    instance = target(options)
    waits = waiting.words([instance], now=datetime.now(timezone.utc), errors=True)
    record = {
        **records.whole(instance, waits[instance.pk]),
        **records.runs(instance),
        "unread": records.unread(instance),
        "mismatch": records.scrubber_of(instance).texts(bench.sides_of(instance)),
    }
    if options.json:
        console.document(record)
        return 0
    error, unread = record.pop("error"), record.pop("unread")
    record.pop("mismatch")
    for name, value in record.items():
        if value not in (None, "", {}):
            console.line(f"{name.replace('_', ' ') + ':':14}{_text(value)}")
    _show_bench(instance, console)
    if error:
        console.line(f"{'error:':14}{error['type']}: {error['message']}")
        console.line(error["traceback"])
    for message in unread:
        name = f"{message['name']} ({message['signal_id']})" if message["signal_id"] else message["name"]
        console.line(
            f"{'unread:':14}signal {name} of {moment(message['stored_at'])}: {preview(message['payload'], 200)}"
        )
    return 0


def _show_bench(instance: WorkflowInstance, console: Console) -> None:
    """Of a run that is blocked by a mismatch, what is recorded and what the body asks for, side by side."""
    found = bench.bench_of(instance, records.scrubber_of(instance))
    if found is None:
        return
    console.line(f"does not fit at {found.position} ({found.line})")
    console.table(
        ["AT", "RECORDED", "STATE", "THE BODY ASKS FOR"],
        [[f"{'>' if x.here else ' '} {x.position}", x.recorded, x.state, x.requested] for x in found.lines],
    )
    for title, lines in (("usual causes", found.causes), ("what to do", found.remedies)):
        console.line(f"{title}:")
        for line in lines:
            console.line(f"  - {line}")


def _text(value: Any) -> str:
    if hasattr(value, "isoformat"):
        return moment(value)
    return value if isinstance(value, str) else preview(value, 2_000)
