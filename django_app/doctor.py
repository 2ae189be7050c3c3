"""What is wrong with the engine right now, and what to do about it. Reads only; each question goes by an index."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime, timedelta
from typing import Any

from django.core.checks import run_checks
from django.db import DatabaseError
from django.db.models import Count, Min, Q, QuerySet
from django.utils.connection import ConnectionDoesNotExist

from django_app import looks, vitals
from django_app.checks import Place
from django_app.models import EngineHeartbeat, StepResult, WorkerLease, WorkflowInstance
from django_app.models.querysets import engine_alias
from django_app.readiness import missing_migrations, table_state, what_to_do
from durable_celery import runtime
from durable_celery.core import journal
from durable_celery.core import transitions as t

PATIENCE = vitals.PATIENCE
COUNTED = 1_000
NAMED = 5
QUEUES = 20
RUNS = journal.RUNS
MOVING = tuple(state for state in t.OPEN_STATES if state != t.BLOCKED)
FINDINGS = (
    "database", "migrations", "tick", "workers", "beat", "queues", "deaf", "blocked", "stuck", "waker", "unclaimed",
    "overdue", "outcomes", "lost",
)  # fmt: skip
ENDS = frozenset({"database", "migrations"})  # of the examination: nothing else was looked at
ACTIVE = Q(instance__state__in=MOVING, instance__paused_at__isnull=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that is wrong. ``count`` stops at 1,000; ``examples`` are ids of instances."""

    id: str
    text: str
    do: str
    count: int = 1
    examples: Sequence[str] = field(default_factory=tuple)


def findings(*, now: datetime | None = None, patience: timedelta = PATIENCE, thorough: bool = False) -> list[Finding]:
    """Everything found, causes before consequences; an unreachable or unmigrated database ends the examination.

    ``thorough`` looks at every open instance for what would wake it, and not only at those that wait longest. ``now``
    is by the database's clock, and read from it by default: this machine's may be wrong.
    """
    try:
        first = [*_checks(), *_migrations()]
        if any(finding.id == "migrations" for finding in first):
            return first
        now = now or runtime.current().clock.measure()
        lost = _without_waker(now - patience, thorough)
        return [
            *first, *_processes(now, patience), *_workers(now, patience), *_instances(now),
            *_queues(now, patience), *_steps(now, patience), *lost,
        ]  # fmt: skip
    except (DatabaseError, ConnectionDoesNotExist) as error:
        return [
            Finding(
                id="database",
                text=f"the database {engine_alias()!r} does not answer as it should: {error}",
                do="check DATABASES, that the server runs and that its user may read the tables of durable_celery",
            )
        ]


def state(*, now: datetime | None = None, patience: timedelta = PATIENCE) -> dict[str, Any]:
    """The numbers behind the findings, as plain values; the tables' version alone where some are not there."""
    try:
        tables = asdict(table_state())
        if tables["missing_migrations"]:
            return tables
        now = now or runtime.current().clock.measure()
        return {**tables, "now": now, **asdict(vitals.measure(now, patience))}
    except (DatabaseError, ConnectionDoesNotExist) as error:
        return {"database": str(error)}


def _checks() -> Iterator[Finding]:
    for message in run_checks(tags=["durable_celery"]):
        # How bodies are written is for `manage.py check`; here it is about what runs.
        if not message.is_silenced() and not isinstance(message.obj, Place):
            yield Finding(id=str(message.id), text=message.msg, do=message.hint or "correct the settings")


def _migrations() -> Iterator[Finding]:
    if missing := missing_migrations():
        yield Finding(
            id="migrations",
            text=f"migrations of durable_celery are not applied to {engine_alias()!r}: {', '.join(missing)}",
            do=what_to_do(),
            count=len(missing),
        )


def _processes(now: datetime, patience: timedelta) -> Iterator[Finding]:
    heartbeat = EngineHeartbeat.objects.filter(pk=1).first()
    ticked = heartbeat.last_tick_at if heartbeat else None
    if ticked is None or now - ticked > patience:
        since = f"for {_seconds(now - ticked)}, since {looks.moment(ticked)}" if ticked else "ever"
        yield Finding(
            id="tick",
            text=f"no tick {since}: timers do not fire, retries do not start, dead workers are not noticed",
            do="start a worker (celery -A proj worker), or Beat if TICK_IN_WORKER is off",
        )
    if not WorkerLease.objects.filter(dead_at__isnull=True, expires_at__gt=now).exists():
        yield Finding(
            id="workers",
            text="no worker holds a live lease: nothing runs",
            do="start a worker: celery -A proj worker",
        )


def _workers(now: datetime, patience: timedelta) -> Iterator[Finding]:
    found = vitals.measure(now, patience)
    if found.beat_is_dead:
        yield Finding(
            id="beat",
            text=f"no tick that Beat sent was taken since {looks.moment(found.last_beat_at)}: schedules start nothing, "
            "and nothing is purged; workers tick by themselves unless TICK_IN_WORKER is off",
            do="start Beat (celery -A proj beat); if it runs: a worker must consume the queue of durable_celery.tick",
        )
    if found.queues_without_worker:
        yield Finding(
            id="queues",
            text=f"no live worker consumes {_named(found.queues_without_worker)}, where steps wait",
            do="start a worker with -Q and these names, or correct queue= of the steps",
            count=len(found.queues_without_worker),
        )
    if found.deaf:
        yield Finding(
            id="deaf",
            text=f"{_named(found.deaf)}: connected and alive, runs nothing, and takes no step from a queue it consumes",
            do="restart it; before, celery -A proj inspect active, active_queues and stats say what it is doing",
            count=len(found.deaf),
        )


def _instances(now: datetime) -> Iterator[Finding]:
    blocked = WorkflowInstance.objects.blocked()
    if found := _sample(blocked):
        yield Finding(
            id="blocked",
            text=f"{_counted(found)} blocked, of {_names(blocked)}: a bug, or code that does not fit the journal",
            do="read waiting_for (durable list --state BLOCKED), correct the code and deploy it: they are tried again",
            count=len(found),
            examples=found[:NAMED],
        )
    stuck = WorkflowInstance.objects.stuck(now)
    if found := _sample(stuck):
        yield Finding(
            id="stuck",
            text=f"{_counted(found)} open for longer than expected, or waiting for a signal for longer than "
            f"its warn_after, of {_names(stuck)}",
            do="durable list --state stuck says what each waits for",
            count=len(found),
            examples=found[:NAMED],
        )


def _without_waker(late: datetime, thorough: bool) -> Iterator[Finding]:
    rows = vitals.without_waker().filter(start_at__lt=late)
    if not thorough:
        rows = rows.filter(pk__in=vitals.waiting_longest(late))
    if found := _sample(rows):
        yield Finding(
            id="waker",
            text=f"{_counted(found)} open and waiting for nothing, of {_names(rows)}: no step, timer or message",
            do="celery -A proj call durable_celery.advance --args '[\"ID\"]' takes a turn; report it, none should be",
            count=len(found),
            examples=found[:NAMED],
        )


def _queues(now: datetime, patience: timedelta) -> Iterator[Finding]:
    """What was sent to a queue, or was due to be, and not taken from it: a worker can be alive and consume nothing."""
    late = now - patience
    sent = StepResult.objects.filter(ACTIVE, kind__in=RUNS)
    steps = sent.filter(state=t.SCHEDULED, scheduled_at__lt=late)
    retries = sent.filter(state=t.RETRYING, due_at__lt=late)
    starts = WorkflowInstance.objects.filter(state=t.PENDING, paused_at__isnull=True, start_at__lt=late)
    for rows, since, what in ((steps, "scheduled_at", "steps"), (retries, "due_at", "retries of steps"),
                              (starts, "start_at", "started workflows")):  # fmt: skip
        for row in rows.order_by().values("queue").annotate(count=Count("pk"), since=Min(since))[:QUEUES]:
            yield Finding(
                id="unclaimed",
                text=f"{row['count']} {what} in {_queue(row['queue'])} were not taken by any worker, the oldest since "
                f"{looks.moment(row['since'])}",
                do="check that a worker consumes this queue (celery -A proj worker -Q ...), and that it is not stuck",
                count=row["count"],
            )


def _steps(now: datetime, patience: timedelta) -> Iterator[Finding]:
    late = now - patience
    overdue = list(StepResult.objects.due(late).values_list("look_at", flat=True)[:COUNTED])
    if count := len(overdue):
        yield Finding(
            id="overdue",
            text=f"{count} timers, steps or time-outs are overdue by up to {_seconds(now - overdue[0])}",
            do="the ticks do not keep up or fail: read the log of a worker for durable_celery",
            count=count,
        )
    outcomes = StepResult.objects.outcomes().filter(ACTIVE, finished_at__lt=late)
    if found := _ids(outcomes.filter(join__isnull=True)):
        yield Finding(
            id="outcomes",
            text=f"{_counted(found)} with a finished step that no turn took in",
            do="read waiting_for; a worker that knows the workflow must run",
            count=len(found),
            examples=found[:NAMED],
        )
    lost = StepResult.objects.filter(
        state=t.RUNNING, lease_id__in=WorkerLease.objects.filter(expires_at__lt=late).values("id")
    )
    if found := _ids(lost):
        yield Finding(
            id="lost",
            text=f"{_counted(found)} with a step on a worker whose lease ran out, and that nobody took back",
            do="start a worker: its tick takes them back",
            count=len(found),
            examples=found[:NAMED],
        )


def _seconds(span: timedelta) -> str:
    return f"{span.total_seconds():.0f} s"


def _sample(rows: QuerySet[WorkflowInstance]) -> list[str]:
    return [str(pk) for pk in rows.order_by().values_list("pk", flat=True)[:COUNTED]]


def _ids(rows: QuerySet[StepResult]) -> list[str]:
    found = rows.order_by().values_list("instance_id", flat=True)[:COUNTED]
    return list(dict.fromkeys(str(pk) for pk in found))


def _queue(name: str) -> str:
    return f"queue {name!r}" if name else "the default queue"


def _named(names: Sequence[str]) -> str:
    return ", ".join(repr(name) for name in names[:NAMED]) + (" and others" if len(names) > NAMED else "")


def _names(rows: QuerySet[WorkflowInstance]) -> str:
    names = sorted(rows.order_by().values_list("name", flat=True).distinct()[: NAMED + 1])
    return ", ".join(names[:NAMED]) + (" and others" if len(names) > NAMED else "")


def _counted(found: Sequence[str]) -> str:
    count = f"{COUNTED:,} or more instances are" if len(found) >= COUNTED else f"{len(found)} instances are"
    return count.replace("1 instances are", "1 instance is") if len(found) == 1 else count
