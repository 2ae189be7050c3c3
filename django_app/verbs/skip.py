"""Go on as if what stands at a position had ended: an open step, the last failure, or a mismatch that blocks."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django_app.repairs import skipped_type
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
        result = typed(result, skipped_type(instance, options.position), "result")
    handle = get_handle(instance.chain_id)
    return end_step(lambda: handle.skip(options.position, result), options, console, "skipped")
