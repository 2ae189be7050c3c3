"""Workflows of the cases about transactions and values, where worker processes must know them."""

from __future__ import annotations

from durable_celery import Workflow, step, workflow
from tests.project.testapp.models import Effect
from tests.project.testapp.steps import note


@step
def look_up(run: str, effect_id: int) -> str:
    """What a row says that was written in the transaction of the start."""
    note(run, "looked up")
    what: str = Effect.objects.get(pk=effect_id).what
    return what


@workflow
def looking_up(run: str, effect_id: int) -> Workflow[str]:
    return (yield from look_up(run, effect_id))
