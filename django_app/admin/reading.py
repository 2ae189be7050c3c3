"""What the pages read: a number of queries that grows with nothing, and never a text too long for a table."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any

from django.core.paginator import Page, Paginator
from django.db.models import Case, Count, F, TextField, Value, When
from django.db.models.functions import Length

from django_app.models import Message, StepAttempt, StepResult, WorkflowInstance
from django_app.records import BIG
from durable_celery.core import journal
from durable_celery.core import transitions as t
from durable_celery.core.journal import REJECTED

LOADED = 16 * 1024  # characters of a value that a table reads at all


def steps(instance: WorkflowInstance, *, number: Any, size: int, of: str = "") -> Page[StepResult]:
    """One page of the journal, in the order it was written; ``args`` and ``result`` are None where too long.

    ``of``: instead, of the members of the map at this position. A map has ``progress``, in words.
    """
    rows = StepResult.objects.filter(instance=instance, mapped=bool(of), **({"group": of} if of else {}))
    page = Paginator(_sized(rows, "args", "result").order_by("id"), size)
    found = _loaded(page.get_page(number), "args", "result")
    note_progress(instance, list(found.object_list))
    return found


def note_progress(instance: WorkflowInstance, rows: Sequence[StepResult]) -> None:
    """Each map among the rows gets ``progress``; one query if there is any."""
    maps = {row.position: row for row in rows if row.kind == journal.MAP}
    if not maps:
        return
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    members = StepResult.objects.filter(instance=instance, mapped=True, group__in=list(maps))
    for position, state, count in members.values_list("group", "state").annotate(count=Count("pk")).order_by():
        counts[position][state] += count
    for position, row in maps.items():
        ended, failed = sum(counts[position][state] for state in t.STEP_FINAL), counts[position][t.FAILED]
        row.progress = f"{ended:,} of {row.members:,} ended" + (f", {failed:,} failed" if failed else "")  # type: ignore[attr-defined]


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
