"""The engine's state in numbers: who ticks, who works, what waits. Reads only; names no workflow and no key."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from uuid import UUID

from django.apps import apps
from django.db.models import Exists, OuterRef, Q, QuerySet

from django_app import queues
from django_app.models import EngineHeartbeat, Message, StepResult, WorkerLease, WorkflowInstance
from django_app.queues import MOVING, Queue
from django_app.store.connected import chunks
from durable_celery import runtime
from durable_celery.celery.quiet import TICK
from durable_celery.core import transitions as t

PATIENCE = timedelta(seconds=60)  # longer than anything takes while all is well
SAMPLE = 1_000  # open instances that are looked at each time for what would wake them
RECENT = timedelta(days=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Vitals:
    """Moments are by the database's clock; ``lag`` is in seconds, how far the slowest worker is behind its queues.

    ``dead_leases``: leases that ran out or were declared dead within a day. ``queues``: with something to take.
    ``queues_without_worker``: those of them that no live worker announced. ``deaf``: nodes that are connected, run
    nothing, and leave what lies in a queue of theirs untaken for longer than the patience. ``without_waker``: of the
    instances that wait longest, as many as ``SAMPLE``, those that nothing would wake.
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
    without_waker: int = 0


def measure(now: datetime, patience: timedelta) -> Vitals:
    """Read them; so many queries, whatever the number of rows."""
    heartbeat = EngineHeartbeat.objects.filter(pk=1).first() or EngineHeartbeat()
    live = list(WorkerLease.objects.filter(dead_at__isnull=True, expires_at__gt=now))
    expired = Q(dead_at__isnull=True, expires_at__lte=now) | Q(dead_at__gt=now - RECENT)
    waiting = queues.unclaimed(now)
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
        queues=waiting,
        queues_without_worker=queues.without_worker(waiting, live),
        deaf=queues.deaf(waiting, live, now - patience),
        without_waker=_lost_among(waiting_longest(now - patience)),
    )


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


def waiting_longest(late: datetime) -> list[UUID]:
    """The instances that wait longest, as many as ``SAMPLE``: by an index, whatever the number of open ones."""
    waiting = WorkflowInstance.objects.filter(state=t.WAITING, waiting_since__lt=late).order_by("waiting_since")
    return list(waiting.values_list("pk", flat=True)[:SAMPLE])


def _lost_among(ids: Sequence[UUID]) -> int:
    return sum(without_waker().filter(pk__in=some).count() for some in chunks(ids))
