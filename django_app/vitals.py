"""The engine's state in numbers: who ticks, who works, what waits. Reads only; names no workflow and no key."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from django.apps import apps
from django.db.models import Count, Exists, Min, OuterRef, Q, QuerySet

from django_app.models import EngineHeartbeat, Message, StepResult, WorkerLease, WorkflowInstance
from durable_celery import runtime
from durable_celery.celery.quiet import TICK
from durable_celery.core import journal
from durable_celery.core import transitions as t

PATIENCE = timedelta(seconds=60)  # longer than anything takes while all is well
QUEUES = 20
MOVING = tuple(state for state in t.OPEN_STATES if state != t.BLOCKED)
ACTIVE = Q(instance__state__in=MOVING, instance__paused_at__isnull=True)
RECENT = timedelta(days=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Queue:
    """Steps that were sent to a queue ("" is the one Celery's routes choose) and not taken; the oldest since when."""

    name: str
    unclaimed: int
    oldest: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Vitals:
    """Moments are by the database's clock; ``lag`` is in seconds, how far the slowest worker is behind its queues.

    ``dead_leases``: leases that ran out or were declared dead within a day. ``queues_without_worker``: with steps to
    take, and no live worker that announced them. ``deaf``: nodes that are connected, run nothing, and leave steps of a
    queue they consume untaken for longer than the patience.
    """

    last_tick_at: datetime | None = None
    last_tick_by: str = ""
    last_beat_at: datetime | None = None
    beat_is_dead: bool = False
    workers: int = 0
    dead_leases: int = 0
    lag: float = 0.0
    oldest_due_at: datetime | None = None
    queues: Sequence[Queue] = field(default_factory=tuple)
    queues_without_worker: Sequence[str] = field(default_factory=tuple)
    deaf: Sequence[str] = field(default_factory=tuple)


def measure(now: datetime, patience: timedelta) -> Vitals:
    """Read them; so many queries, whatever the number of rows."""
    heartbeat = EngineHeartbeat.objects.filter(pk=1).first() or EngineHeartbeat()
    live = list(WorkerLease.objects.filter(dead_at__isnull=True, expires_at__gt=now))
    expired = Q(dead_at__isnull=True, expires_at__lte=now) | Q(dead_at__gt=now - RECENT)
    queues = _queues()
    announced = {name for lease in live for name in queues_of(lease)}
    due = StepResult.objects.due(now).values_list("look_at", flat=True).first()
    return Vitals(
        last_tick_at=heartbeat.last_tick_at,
        last_tick_by=heartbeat.last_tick_by,
        last_beat_at=heartbeat.beat_at,
        beat_is_dead=beat_is_dead(now, patience),
        workers=len(live),
        dead_leases=WorkerLease.objects.filter(expired).count(),
        lag=max((lease.lag for lease in live), default=0.0),
        oldest_due_at=due,
        queues=queues,
        queues_without_worker=_without_worker(queues, live, announced),
        deaf=_deaf(queues, live, now - patience),
    )


def queues_of(lease: Any) -> list[str]:
    """The queues that a worker announced it consumes; none if it did not say."""
    return [name for name in lease.queues.split("\n") if name]


def beat_is_dead(now: datetime, patience: timedelta) -> bool:
    """Whether Beat has sent the tick once, and no more for so long; not where its entry was disabled on purpose."""
    beat_at = EngineHeartbeat.objects.filter(pk=1).values_list("beat_at", flat=True).first()
    return beat_at is not None and now - beat_at > patience and not _entry_is_off()


def beat_warning() -> str:
    """What to say of a dead Beat, wherever people look; "" if it lives, or never did."""
    if not EngineHeartbeat.objects.filter(pk=1, beat_at__isnull=False).exists():
        return ""
    if not beat_is_dead(runtime.current().clock.measure(), PATIENCE):
        return ""
    return (
        "Beat seems to be dead: no tick that it sent was taken for over a minute. Schedules start no workflow, and "
        "nothing is purged. Start it: celery -A proj beat"
    )


def without_waker() -> QuerySet[WorkflowInstance]:
    """Open instances that wait for nothing: no row is open or new, no message, no moment at which anybody looks."""
    rows = StepResult.objects.filter(instance_id=OuterRef("pk"), taken_turn__isnull=True)
    messages = Message.objects.filter(chain_id=OuterRef("chain_id"), taken_turn__isnull=True, look_at__isnull=False)
    found: QuerySet[WorkflowInstance] = WorkflowInstance.objects.filter(
        ~Exists(rows.filter(Q(state__in=t.STEP_OPEN) | Q(look_at__isnull=False))), ~Exists(messages),
        state__in=MOVING, paused_at__isnull=True, look_at__isnull=True,
    )  # fmt: skip
    return found


def _entry_is_off() -> bool:
    if not apps.is_installed("django_celery_beat"):
        return False
    entries = list(apps.get_model("django_celery_beat", "PeriodicTask")._default_manager.filter(task=TICK))
    return bool(entries) and not any(entry.enabled for entry in entries)


def _queues() -> tuple[Queue, ...]:
    sent = StepResult.objects.filter(ACTIVE, kind__in=journal.RUNS, state=t.SCHEDULED)
    grouped = sent.order_by().values("queue").annotate(count=Count("pk"), oldest=Min("scheduled_at"))
    return tuple(
        Queue(name=row["queue"], unclaimed=row["count"], oldest=row["oldest"])
        for row in grouped.order_by("queue")[:QUEUES]
    )


def _without_worker(queues: Sequence[Queue], live: Sequence[Any], announced: set[str]) -> tuple[str, ...]:
    """Known only if every live worker says what it consumes."""
    if not live or not all(queues_of(lease) for lease in live):
        return ()
    return tuple(queue.name for queue in queues if queue.name and queue.name not in announced)


def _deaf(queues: Sequence[Queue], live: Sequence[Any], late: datetime) -> tuple[str, ...]:
    left = {queue.name for queue in queues if queue.oldest < late}
    suspects = [lease for lease in live if left & {*queues_of(lease)}]
    if not suspects:
        return ()
    ids = [lease.pk for lease in suspects]
    busy = set(StepResult.objects.filter(lease_id__in=ids, state=t.RUNNING).values_list("lease_id", flat=True))
    return tuple(sorted({lease.node for lease in suspects if lease.pk not in busy}))
