"""What instances wait for, as the rows say it now: for a whole list in a few queries."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db.models import Count, F, Window
from django.db.models.functions import RowNumber

from django_app.families import scrubbers
from django_app.models import StepResult, WorkflowInstance
from django_app.models.querysets import engine_alias
from django_app.store import DjangoStore
from django_app.store.rows import STEP_FIELDS, open_step
from durable_celery.core import journal
from durable_celery.core import transitions as t
from durable_celery.engine.outlook import SHOWN, waiting_for
from durable_celery.ports import OpenStep

LEAVES = tuple(state for state in t.STEP_OPEN if state != t.HELD)
WITHOUT_ERROR = tuple(name for name in STEP_FIELDS if name != "failure")


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What a list says of an instance, without its secrets."""

    waits: str
    status: str


def told(instances: Sequence[WorkflowInstance], *, now: datetime) -> dict[UUID, Told]:
    """What a list says of each. Texts of its body are searched for secrets; what the rows say holds none."""
    waits = words(instances, now=now, errors=False)
    texts = [row.pk for row in instances if row.status_text or (waits[row.pk] and waits[row.pk] == row.waiting_for)]
    scrubs = scrubbers(texts)
    clean = {row.pk: scrubs.get(row.pk, str) for row in instances}
    return {
        row.pk: Told(waits=clean[row.pk](waits[row.pk]), status=clean[row.pk](row.status_text)) for row in instances
    }


def words(instances: Sequence[WorkflowInstance], *, now: datetime, errors: bool) -> dict[UUID, str]:
    """``handle.waiting_for`` of each. With ``errors`` the last error of a retry is told, which a list leaves out."""
    fields = STEP_FIELDS if errors else WITHOUT_ERROR
    steps: dict[UUID, list[OpenStep]] = defaultdict(list)
    totals: dict[UUID, int] = {}
    for *values, total in _leaves([row.pk for row in instances if row.state in t.OPEN_STATES], fields):
        step = open_step(tuple(values) if errors else (*values, None))
        steps[step.instance_id].append(step)
        totals[step.instance_id] = total
    told = defaultdict(list)
    for step in DjangoStore(engine_alias()).with_progress([step for some in steps.values() for step in some]):
        told[step.instance_id].append(step)
    return {row.pk: _words(row, told[row.pk], totals.get(row.pk, 0), now) for row in instances}


def _leaves(ids: Iterable[UUID], fields: Sequence[str]) -> Any:
    """The first few open rows of each instance, with how many it has."""
    rows = StepResult.objects.filter(instance_id__in=list(ids), state__in=LEAVES, mapped=False, taken_turn__isnull=True)
    return (
        rows.exclude(kind__in=journal.COMPOSITES)
        .annotate(
            number=Window(RowNumber(), partition_by=F("instance_id"), order_by=F("id").asc()),
            total=Window(Count("id"), partition_by=F("instance_id")),
        )
        .filter(number__lte=SHOWN)
        .order_by("instance_id", "id")
        .values_list(*fields, "total")
    )


def _words(instance: Any, steps: Sequence[OpenStep], total: int, now: datetime) -> str:
    text = waiting_for(instance, steps, now)
    more = total > len(steps) and text != instance.waiting_for
    return f"{text}; and {total - len(steps)} more" if more else text
