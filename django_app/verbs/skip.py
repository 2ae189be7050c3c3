"""Go on as if what stands at a position had ended: an open step, the last failure, or a mismatch that blocks."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django_app import bench
from django_app.models import WorkflowInstance
from django_app.verbs.complete_step import result_type
from django_app.verbs.console import Console
from django_app.verbs.plain import read_json, typed
from django_app.verbs.stepping import add_step, end_step
from django_app.verbs.target import target
from durable_celery import get_handle


def arguments(parser: ArgumentParser) -> None:
    add_step(parser)
    parser.add_argument("--result", metavar="JSON", help="of the type that the step returns; None if left out")


def run(options: Any, console: Console) -> int:
    result = None if options.result is None else read_json(options.result, "--result")
    instance = target(options)
    if options.result is not None:
        kind = result_type(instance, options.position, _asked_for(instance, options.position))
        result = typed(result, kind, "result")
    handle = get_handle(instance.chain_id)
    return end_step(lambda: handle.skip(options.position, result), options, console, "skipped")


def _asked_for(instance: WorkflowInstance, position: str) -> str:
    """The step that the body asks for where it does not fit the journal."""
    sides = bench.sides_of(instance) or {}
    command = sides.get("requested_command") or {}
    return str(command.get("name", "")) if sides.get("position") == position else ""
