"""What the pages read: a number of queries that grows with nothing, and never a text too long for a table."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from django.core.paginator import Page, Paginator
from django.db.models import Case, F, TextField, Value, When
from django.db.models.functions import Length

from django_app.models import Message, StepAttempt, StepResult, WorkflowInstance
from django_app.records import BIG
from durable_celery.core import transitions as t
from durable_celery.core.journal import REJECTED

LOADED = 16 * 1024  # characters of a value that a table reads at all


def steps(instance: WorkflowInstance, *, number: Any, size: int) -> Page[StepResult]:
    """One page of the journal, in the order it was written; ``args`` and ``result`` are None where too long."""
    page = Paginator(_sized(StepResult.objects.filter(instance=instance), "args", "result").order_by("id"), size)
    return _loaded(page.get_page(number), "args", "result")


def attempts(rows: Sequence[StepResult], most: int) -> dict[int, list[StepAttempt]]:
    """The last ``most`` recorded attempts of each step, oldest first."""
    found: dict[int, list[StepAttempt]] = defaultdict(list)
    ids = [row.pk for row in rows if row.attempt]
    recent = StepAttempt.objects.filter(step_id__in=ids, attempt__gt=F("step__attempt") - most)
    for record in recent.order_by("id")[: most * max(len(ids), 1)]:
        found[record.step_id].append(record)
    return found


def messages(instance: WorkflowInstance, most: int) -> tuple[list[Message], int]:
    """The newest, oldest first, and how many there are: counted up to ten times ``most``.

    Those that this run took in, and those that no run of its chain did yet. A rejected update is no message.
    """
    taken = Message.objects.filter(instance_id=instance.pk, taken_turn__isnull=False).exclude(kind=REJECTED)
    new = Message.objects.filter(chain_id=instance.chain_id, taken_turn__isnull=True)
    found: list[Message] = []
    count = 0
    for rows in (taken,) if instance.state == t.CONTINUED else (taken, new):
        some = list(_sized(rows, "payload", "answer").order_by("-id")[:most])
        count += len(some) if len(some) < most else rows[: most * 10].count()
        found += some
    found.sort(key=lambda message: message.pk)
    return _replaced(found[-most:], "payload", "answer"), count


def children(instance: WorkflowInstance, most: int) -> list[WorkflowInstance]:
    return list(WorkflowInstance.objects.filter(parent_id=instance.pk).defer(*BIG).order_by("created_at")[:most])


def _sized(rows: Any, *fields: str) -> Any:
    """Texts that are too long stay in the database; their length comes instead."""
    rows = rows.annotate(**{f"{field}_size": Length(field) for field in fields}).defer(*fields)
    return rows.annotate(
        **{
            f"{field}_loaded": Case(
                When(**{f"{field}_size__lte": LOADED}, then=F(field)), default=Value(None), output_field=TextField()
            )
            for field in fields
        }
    )


def _loaded(page: Page[StepResult], *fields: str) -> Page[StepResult]:
    page.object_list = _replaced(list(page.object_list), *fields)
    return page


def _replaced(rows: list[Any], *fields: str) -> list[Any]:
    for row in rows:
        for field in fields:
            setattr(row, field, getattr(row, f"{field}_loaded"))
    return rows
