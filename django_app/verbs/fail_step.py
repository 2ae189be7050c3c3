"""End an open step with an error, without another attempt; the body gets StepFailed."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django_app.verbs.console import Console
from django_app.verbs.stepping import add_step, end_step
from django_app.verbs.target import target
from durable_celery import get_handle


def arguments(parser: ArgumentParser) -> None:
    add_step(parser)
    parser.add_argument("--error", default="failed by hand", metavar="TEXT", help="what the body is told")


def run(options: Any, console: Console) -> int:
    handle = get_handle(target(options).chain_id)
    return end_step(lambda: handle.fail_step(options.position, options.error), options, console, "failed")
