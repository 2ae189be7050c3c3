"""Ask an instance: the answer of its body's query, as of its last turn; nothing is changed."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django_app.verbs.answering import add_args, attempt, read_args, show
from django_app.verbs.console import Console
from django_app.verbs.target import add_target, target
from durable_celery import get_handle


def arguments(parser: ArgumentParser) -> None:
    add_target(parser)
    parser.add_argument("name", metavar="NAME", help="of the query")
    add_args(parser)
    parser.add_argument("--json", action="store_true", help="one JSON document: an object")


def run(options: Any, console: Console) -> int:
    args = read_args(options)
    instance = target(options)
    handle = get_handle(instance.chain_id)
    answer = attempt(lambda: handle.query(options.name, *args), instance, console)
    return 1 if answer is None else show(answer, instance, {"query": options.name}, options, console)
