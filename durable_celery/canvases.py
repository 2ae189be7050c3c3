"""Celery canvases in workflows: yielded with a type, or started as an instance of their own."""

from __future__ import annotations

from typing import Any

from durable_celery import runtime
from durable_celery.client import WorkflowHandle
from durable_celery.core import scope
from durable_celery.core.commands import Command
from durable_celery.errors import BadValue
from durable_celery.workflows import Workflow, workflow

NAME = "durable_celery.run"


def canvas(signature: Any) -> Command[Any]:
    """The command a Celery signature stands for: ``x = yield from canvas(add.s(1, 2) | add.s(3))``.

    The same as ``yield signature``, in the form type checkers follow. Chains, groups and chords nest at will; a group's
    value is a list. The tasks keep their own retries and limits; ``StepFailed`` once they are used up. ``UsageError``
    for what is no signature or has no durable form.
    """
    run = scope.required("canvas", "outside a workflow durable_celery.run(signature) starts it as an instance")
    command = run.adapt(signature)
    if command is None:
        raise BadValue(
            f"canvas() takes a Celery signature such as task.s(...), got {signature!r:.80}", path="signature"
        )
    return command


def run(signature: Any, /, **options: Any) -> WorkflowHandle[Any]:
    """Start a Celery canvas as an instance of the workflow ``durable_celery.run``, in the current transaction.

    ``options`` are those of ``workflow.using``: ``key``, ``queue``, ``start_delay``, ... The handle's ``result()`` is
    the value of the canvas. What has no durable form is a ``UsageError`` here.
    """
    data = runtime.current().transport.plain(signature)
    if data is None:
        raise BadValue(
            f"durable_celery.run takes a Celery signature such as task.s(...), got {signature!r:.80}", path="signature"
        )
    handle: WorkflowHandle[Any] = run_canvas.using(**options).start(data)
    return handle


@workflow(name=NAME)
def run_canvas(signature: dict[str, Any]) -> Workflow[Any]:
    """One canvas, as plain data."""
    return (yield from canvas(signature))
