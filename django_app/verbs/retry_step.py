"""Try one step again now: one that waits for its next attempt, or whose failure the body has not seen."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django_app.verbs.console import Console
from django_app.verbs.stepping import add_step, end_step
from django_app.verbs.target import target
from durable_celery import get_handle


def arguments(parser: ArgumentParser) -> None:
    add_step(parser)


def run(options: Any, console: Console) -> int:
    handle = get_handle(target(options).chain_id)
    return end_step(lambda: handle.retry_step(options.position), options, console, "will be tried again")
