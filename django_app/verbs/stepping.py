"""What the verbs share that end one step."""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Callable
from typing import Any

from django_app.verbs.console import Console, WrongUsage
from django_app.verbs.target import add_target
from durable_celery.errors import BadValue, DurableError, PayloadError


def add_step(parser: ArgumentParser) -> None:
    """The instance, and a position of its journal."""
    add_target(parser)
    parser.add_argument("position", metavar="POSITION", help="of the step, as durable history shows it")


def end_step(end: Callable[[], None], options: Any, console: Console, done: str) -> int:
    """Do it; 1 if it came too late."""
    try:
        end()
    except (BadValue, PayloadError) as error:
        raise WrongUsage(str(error)) from None
    except DurableError as refusal:
        console.error(str(refusal))
        return 1
    console.line(f"step {options.position}: {done}")
    return 0
