"""``continue_as_new``: the same instance goes on with an empty journal."""

from __future__ import annotations

from typing import Any, NoReturn

from durable_celery import calls
from durable_celery.core import scope
from durable_celery.core.commands import Command
from durable_celery.core.continuing import ContinueCommand
from durable_celery.core.decision import Continuation
from durable_celery.errors import BadValue
from durable_celery.registry import registry
from durable_celery.workflows import WorkflowDefinition


def continue_as_new(
    *args: Any, workflow: WorkflowDefinition[Any, Any] | None = None, **kwargs: Any
) -> Command[NoReturn]:
    """Go on as a new run, with these arguments and an empty journal; for what runs for ever, or long.

    Write ``return (yield from continue_as_new(...))`` (for type checkers without ``return`` where the body returns
    nothing). It never returns: ``finally`` runs (yielded cleanup too), the run ends CONTINUED, and its successor is
    created in the same transaction. ``workflow``: go on as another one.

    To everybody outside nothing ends: ``handle.id``, the key, the end of ``execution_timeout``, the parent, attributes,
    memo, subject, queue and priority stay; the result is that of the last run. Messages nobody has read, and updates
    not answered yet, go on to the next run, in order. The new run takes the highest ``version`` there is. ``expected``
    and positions count anew; steps, timers, markers and the status text stay with the old run.

    Arguments the workflow does not take are a ``TypeError`` here. ``UsageError`` at the yield (the instance is BLOCKED
    then) if something would be left behind: spawned work that still runs, or a compensation that could still fall due.
    A cancel that came before wins. Under another workflow's name the key moves to that name; if another open instance
    of it has the key there, the instance is BLOCKED until ``retry()``.

    After continue-as-new of Temporal and of Azure Durable Functions; an argument named ``workflow`` goes by position.
    """
    run = scope.required("continue_as_new(...)", "outside, start a new instance with .start(...)")
    if workflow is not None and not isinstance(workflow, WorkflowDefinition):
        raise BadValue(
            f"continue_as_new(workflow=<a {type(workflow).__name__}>) is not allowed, expected a function decorated "
            "with @workflow; options of using(...) are those of a start, and stay as they are",
            path="workflow",
        )
    target = registry.newest(run.info.name if workflow is None else workflow.name)
    text = calls.encode_call(target.signature, target.name, args, kwargs)
    return ContinueCommand(Continuation(name=target.name, version=target.version, args=text))
