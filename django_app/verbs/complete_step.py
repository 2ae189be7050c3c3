"""End an open step with a result, in place of the worker or of the outside it was handed to."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django_app.models import StepResult, WorkflowInstance
from django_app.verbs.console import Console
from django_app.verbs.plain import read_json, typed
from django_app.verbs.stepping import add_step, end_step
from django_app.verbs.target import target
from durable_celery import get_handle
from durable_celery.codec.plain import hints_of
from durable_celery.registry import registry


def arguments(parser: ArgumentParser) -> None:
    add_step(parser)
    parser.add_argument("--result", default="null", metavar="JSON", help="of the type that the step returns (null)")


def run(options: Any, console: Console) -> int:
    result = read_json(options.result, "--result")
    instance = target(options)
    result = typed(result, result_type(instance, options.position), "result")
    handle = get_handle(instance.chain_id)
    return end_step(lambda: handle.complete_step(options.position, result), options, console, "completed")


def result_type(instance: WorkflowInstance, position: str, name: str = "") -> Any:
    """What the step there (or of this name) says that it returns; None where this process does not know it."""
    rows = StepResult.objects.filter(instance__chain_id=instance.chain_id, position=position)
    step = registry.steps.get(name or rows.order_by("-id").values_list("name", flat=True).first() or "")
    return hints_of(step.body).get("return") if step is not None else None
