"""Whose secrets the errors of an instance may repeat: those of its failing steps and of children that failed it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from typing import Any
from uuid import UUID

from django.db.models import Case, F, TextField, Value, When, Window
from django.db.models.functions import Length, RowNumber

from django_app.models import StepResult, WorkflowInstance
from durable_celery import disclosure
from durable_celery.core import identity, journal
from durable_celery.core import transitions as t
from durable_celery.disclosure import Disclosure, of_row
from durable_celery.secrecy import Scrubber, scrubber

FAILING = 20  # rows whose errors the texts of an instance may repeat, in each generation
GENERATIONS = 6  # of children below it
SEARCHED = 64 * 1024  # characters of arguments that are searched for secrets where many instances are shown

Calls = dict[UUID, list[tuple[str, Disclosure]]]


def scrubbers(instance_ids: Iterable[UUID], *, longest: int | None = SEARCHED) -> Mapping[UUID, Scrubber]:
    """What takes the secrets out of the texts of each: two queries, and two for each generation of failed children.

    One with arguments longer than ``longest`` shows no text at all.
    """
    ids = set(instance_ids)
    if not ids:
        return {}
    rows = _sized(WorkflowInstance.objects.filter(pk__in=ids), longest)
    found = list(rows.values_list("pk", "name", "version", "loaded"))
    workflows = {pk: disclosure.of_workflow(name, version) for pk, name, version, _ in found}
    calls, unread = failing_calls(workflows, longest=longest)
    for pk, _, _, args in found:
        if args is None:
            unread.add(pk)
        elif args:
            calls[pk].append((args, workflows[pk]))
    return {pk: scrubber(calls[pk], blind=pk in unread) for pk in workflows}


def failing_calls(workflows: Mapping[UUID, Disclosure], *, longest: int | None = None) -> tuple[Calls, set[UUID]]:
    """The encoded calls of each instance and what of them is secret, and the instances with one that is too long.

    One query, and two for each generation of children that failed.
    """
    found: Calls = defaultdict(list)
    unread: set[UUID] = set()
    below = {run: (run, of) for run, of in workflows.items()}  # whom a run failed, and what is secret in it
    for _ in range(GENERATIONS):
        children: dict[UUID, tuple[UUID, Disclosure]] = {}
        for row in _failing(below, longest):
            top, of = below[row.instance_id]
            if row.loaded is None:
                unread.add(top)
            else:
                found[top].append((row.loaded, of_row(row.kind, row.name, of)))
            if row.kind == journal.CHILD:
                children[identity.child_id(row.instance_id, row.position)] = top, of | disclosure.of_child(row.name)
        if not children:
            break
        below = {run: children[chain] for run, chain in _newest_runs(children).items()}
    return found, unread


def _failing(runs: Collection[UUID], longest: int | None) -> Any:
    rows = StepResult.objects.filter(instance_id__in=list(runs), state__in=(t.FAILED, t.RETRYING, t.CANCELLED))
    newest = Window(RowNumber(), partition_by=F("instance_id"), order_by=F("id").desc())
    found = _sized(rows.exclude(args=""), longest).annotate(number=newest).filter(number__lte=FAILING)
    return found.only("kind", "name", "position", "instance_id")


def _sized(rows: Any, longest: int | None) -> Any:
    """With ``args`` as ``loaded``: None where they are longer."""
    if longest is None:
        return rows.annotate(loaded=F("args"))
    short = When(size__lte=longest, then=F("args"))
    return rows.annotate(size=Length("args")).annotate(
        loaded=Case(short, default=Value(None), output_field=TextField())
    )


def _newest_runs(chains: Iterable[UUID]) -> dict[UUID, UUID]:
    """The chain of each run that ended one of these chains."""
    runs = WorkflowInstance.objects.filter(chain_id__in=list(chains)).exclude(state=t.CONTINUED)
    return dict(runs.values_list("id", "chain_id"))
