"""Have an instance run an update, and wait for its answer."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django_app.verbs.answering import Answered, add_args, attempt, read_args, show
from django_app.verbs.console import Console, WrongUsage
from django_app.verbs.target import add_target, target
from durable_celery import get_handle

TIMEOUT = 30.0  # seconds


def arguments(parser: ArgumentParser) -> None:
    add_target(parser)
    parser.add_argument("name", metavar="NAME", help="of the update")
    add_args(parser)
    parser.add_argument(
        "--timeout", type=float, default=TIMEOUT, metavar="SECONDS", help="how long to wait for the answer (30)"
    )
    parser.add_argument(
        "--update-id", metavar="TEXT", help="a second one with the same id gives the first one's answer"
    )
    parser.add_argument("--no-wait", action="store_true", help="print the update's id and do not wait")
    parser.add_argument("--json", action="store_true", help="one JSON document: an object")


def run(options: Any, console: Console) -> int:
    if options.timeout < 0:
        raise WrongUsage(f"--timeout {options.timeout:g} is not allowed, expected seconds, 0 or more")
    args = read_args(options)
    instance = target(options)
    handle = get_handle(instance.chain_id)
    sent = attempt(
        lambda: handle.update(options.name, *args, update_id=options.update_id, wait=False), instance, console
    )
    if sent is None:
        return 1
    facts = {"update": options.name, "update_id": sent.value}
    if options.no_wait:
        if options.json:
            console.document({"id": str(instance.chain_id), **facts})
        else:
            console.line(sent.value)
        return 0
    answer: Answered | None = attempt(
        lambda: handle.update(options.name, *args, update_id=sent.value, timeout=options.timeout), instance, console
    )
    return 1 if answer is None else show(answer, instance, facts, options, console)
