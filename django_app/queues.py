"""What lies in the queues and was not taken, and who should have taken it. Reads only."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db.models import Count, Min, Q

from django_app.models import StepResult, WorkflowInstance
from durable_celery import runtime
from durable_celery.core import journal
from durable_celery.core import transitions as t

QUEUES = 20
GROUPS = 500  # kinds of steps in one queue; each may be routed to another
MOVING = tuple(state for state in t.OPEN_STATES if state != t.BLOCKED)
ACTIVE = Q(instance__state__in=MOVING, instance__paused_at__isnull=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Queue:
    """Steps and starts that were sent to a queue, or are due to be, and not taken; the oldest since when.

    Its name is that of the broker; "" where a router of the project decides, and refuses to be asked.
    """

    name: str
    unclaimed: int
    oldest: datetime


def unclaimed(now: datetime) -> tuple[Queue, ...]:
    """The queues with something to take, the one that waits longest at the front."""
    found: dict[str, Queue] = {}
    for name, count, oldest in _groups(now):
        other = found.get(name)
        if other is not None:
            count, oldest = count + other.unclaimed, min(oldest, other.oldest)
        found[name] = Queue(name=name, unclaimed=count, oldest=oldest)
    return tuple(sorted(found.values(), key=lambda queue: (queue.oldest, queue.name))[:QUEUES])


def _groups(now: datetime) -> Iterator[tuple[str, int, datetime]]:
    queue_of = runtime.current().transport.queue_of
    sent = StepResult.objects.filter(ACTIVE, kind__in=journal.RUNS).order_by()
    for rows, since in (
        (sent.filter(state=t.SCHEDULED), "scheduled_at"),
        (sent.filter(state=t.RETRYING, due_at__lte=now), "due_at"),
    ):
        for row in rows.values("queue", "name").annotate(count=Count("pk"), oldest=Min(since))[:GROUPS]:
            yield queue_of(row["queue"], row["name"]), row["count"], row["oldest"]
    starts = WorkflowInstance.objects.filter(state=t.PENDING, paused_at__isnull=True, start_at__lte=now).order_by()
    for row in starts.values("queue").annotate(count=Count("pk"), oldest=Min("start_at"))[:GROUPS]:
        yield queue_of(row["queue"]), row["count"], row["oldest"]


def announced(lease: Any) -> list[str]:
    """The queues that a worker announced it consumes; none if it did not say."""
    return [name for name in lease.queues.split("\n") if name]


def without_worker(queues: Sequence[Queue], live: Sequence[Any]) -> tuple[str, ...]:
    """Those that no live worker consumes; known only if each says what it consumes."""
    if not live or not all(announced(lease) for lease in live):
        return ()
    consumed = {name for lease in live for name in announced(lease)}
    return tuple(sorted(queue.name for queue in queues if queue.name and queue.name not in consumed))


def deaf(queues: Sequence[Queue], live: Sequence[Any], late: datetime) -> tuple[str, ...]:
    """Nodes that are connected, run nothing, are behind in nothing, and leave what lies in a queue of theirs."""
    left = {queue.name for queue in queues if queue.oldest < late}
    suspects = [lease for lease in live if left & {*announced(lease)} and not lease.lag]
    if not suspects:
        return ()
    ids = [lease.pk for lease in suspects]
    busy = set(StepResult.objects.filter(lease_id__in=ids, state=t.RUNNING).values_list("lease_id", flat=True))
    return tuple(sorted({lease.node for lease in suspects if lease.pk not in busy}))
