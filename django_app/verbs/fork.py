"""Start a new instance from everything recorded before a position, and print its id."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django_app.verbs.console import Console, WrongUsage
from django_app.verbs.stepping import add_step
from django_app.verbs.target import target
from durable_celery import get_handle
from durable_celery.errors import BadValue, DurableError


def arguments(parser: ArgumentParser) -> None:
    add_step(parser)


def run(options: Any, console: Console) -> int:
    try:
        handle = get_handle(target(options).chain_id).fork(options.position)
    except BadValue as error:
        raise WrongUsage(str(error)) from None
    except DurableError as refusal:
        console.error(str(refusal))
        return 1
    console.line(handle.id)
    return 0
