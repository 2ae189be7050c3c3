"""Whose secrets the errors of an instance may repeat: those of its failing steps and of children that failed it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from uuid import UUID

from django.db.models import Q

from django_app import disclosure
from django_app.disclosure import Disclosure
from django_app.models import StepResult, WorkflowInstance
from durable_celery.core import identity, journal
from durable_celery.core import transitions as t

FAILING = 20  # rows whose errors the texts of an instance may repeat, in each generation
GENERATIONS = 6  # of children below it


def failing_calls(instance: WorkflowInstance, workflow: Disclosure) -> list[tuple[str, Disclosure]]:
    """The encoded calls and what of them is secret. One query, and one for each generation of children that failed."""
    found: list[tuple[str, Disclosure]] = []
    rows = _failing(Q(instance=instance))
    hidden = {instance.pk: workflow}
    for _ in range(GENERATIONS):
        found += [(row.args, of_row(row.kind, row.name, hidden.get(row.instance_id, workflow))) for row in rows]
        children = {
            identity.child_id(row.instance_id, row.position): hidden.get(row.instance_id, workflow)
            | disclosure.of_child(row.name)
            for row in rows
            if row.kind == journal.CHILD
        }
        if not children:
            break
        runs = _newest_runs(children)
        hidden = {run: children[chain] for run, chain in runs.items()}
        rows = _failing(Q(instance__in=list(runs)))
    return found


def of_row(kind: str, name: str, workflow: Disclosure) -> Disclosure:
    """Of a row: what is a call has arguments by name, everything else has values only."""
    if kind == journal.CHILD:
        return disclosure.of_child(name) | workflow
    if kind in journal.RUNS:
        return disclosure.of_step(name) | workflow
    return disclosure.of_values() | workflow


def _failing(of: Q) -> Sequence[StepResult]:
    rows = StepResult.objects.filter(of, state__in=(t.FAILED, t.RETRYING, t.CANCELLED)).exclude(args="")
    return list(rows.order_by("-id").only("kind", "name", "args", "position", "instance_id")[:FAILING])


def _newest_runs(chains: Iterable[UUID]) -> dict[UUID, UUID]:
    """The chain of each run that ended one of these chains."""
    runs = WorkflowInstance.objects.filter(chain_id__in=list(chains)).exclude(state=t.CONTINUED)
    return dict(runs.values_list("id", "chain_id"))
