"""What the verbs share that ask an instance and show its answer."""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from django_app import records
from django_app.models import WorkflowInstance
from django_app.values import value_data
from django_app.verbs.console import Console, WrongUsage
from django_app.verbs.plain import read_json
from durable_celery import codec, disclosure
from durable_celery.codec import preview
from durable_celery.errors import BadValue, UpdateRejected


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """An answer; its value may be None."""

    value: Any


def add_args(parser: ArgumentParser) -> None:
    parser.add_argument("--args", dest="call_args", default="[]", metavar="JSON", help="a list: the arguments ([])")


def read_args(options: Any) -> list[Any]:
    """The arguments; what is no list is wrong usage."""
    args = read_json(options.call_args, "--args")
    if not isinstance(args, list):
        raise WrongUsage(f'--args must be a list such as [1, "two"], got {options.call_args:.80}')
    return args


def attempt(ask: Callable[[], Any], instance: WorkflowInstance, console: Console) -> Answered | None:
    """The answer; a refusal, or whatever the body's own function raised, is said on stderr and gives None."""
    try:
        return Answered(value=ask())
    except BadValue as error:
        raise WrongUsage(str(error)) from None
    except UpdateRejected as refusal:
        if not refusal.accepted and refusal.matches(BadValue):
            raise WrongUsage(refusal.message) from None
        console.error(f"{instance.chain_id}: {type(refusal).__name__}: {refusal}")
        return None
    except Exception as refusal:  # noqa: BLE001 - a query raises what the body's own code raises
        scrub = records.scrubber_of(instance)
        console.error(f"{instance.chain_id}: {type(refusal).__name__}: {scrub(str(refusal))}")
        return None


def show(answer: Answered, instance: WorkflowInstance, facts: dict[str, Any], options: Any, console: Console) -> int:
    """Print it, without the secrets that the workflow or the project names."""
    of = disclosure.of_values() | disclosure.of_workflow(instance.name, instance.version)
    data = value_data(codec.encode(answer.value, root="answer"), of, records.scrubber_of(instance).data)
    if options.json:
        console.document({"id": str(instance.chain_id), **facts, "answer": data})
    else:
        console.line(data if isinstance(data, str) else preview(data, 10_000))
    return 0
