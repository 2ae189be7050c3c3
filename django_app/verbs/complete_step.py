"""End an open step with a result, in place of the worker or of the outside it was handed to."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django_app.repairs import result_type
from django_app.verbs.console import Console
from django_app.verbs.plain import read_json, typed
from django_app.verbs.stepping import add_step, end_step
from django_app.verbs.target import target
from durable_celery import get_handle


def arguments(parser: ArgumentParser) -> None:
    add_step(parser)
    parser.add_argument("--result", default="null", metavar="JSON", help="of the type that the step returns (null)")


def run(options: Any, console: Console) -> int:
    result = read_json(options.result, "--result")
    instance = target(options)
    result = typed(result, result_type(instance, options.position), "result")
    handle = get_handle(instance.chain_id)
    return end_step(lambda: handle.complete_step(options.position, result), options, console, "completed")
