"""Leases of process incarnations, and what was claimed under them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from uuid import UUID

from django.db.models import Exists, Max, Min, OuterRef

from django_app.models import StepResult, WorkerLease
from django_app.store import rows
from django_app.store.connected import Connected
from django_app.store.retries import retried
from durable_celery.core import transitions as t
from durable_celery.ports import Announced, Lease, OpenStep

STARVED = timedelta(seconds=20)  # how long over its lease a process may be and live all the same
LEASE_FIELDS = ("id", "node", "boot_id", "pid_ns", "pid", "start_ticks", "expires_at", "dead_at", "lag")


class Processes(Connected):
    """A lease that was declared dead stays dead; its process must drop its claims."""

    @retried
    def open_lease(self, lease: Lease) -> None:
        """Insert a lease."""
        self.rows(WorkerLease).create(**{name: getattr(lease, name) for name in (*LEASE_FIELDS, "queues", "code")})

    @retried
    def renew_lease(self, lease_id: UUID, expires_at: datetime, *, lag: float = 0.0) -> bool:
        """Extend a lease that is not dead and note its ``lag``; False if it was declared dead or is gone."""
        mine = self.rows(WorkerLease).filter(pk=lease_id, dead_at__isnull=True)
        return bool(mine.update(expires_at=expires_at, lag=lag))

    @retried
    def leases(self) -> Sequence[Lease]:
        """All leases not yet declared dead, the one that expires first at the front."""
        alive = self.rows(WorkerLease).filter(dead_at__isnull=True).order_by("expires_at", "id")
        return [Lease(**values) for values in alive.values(*LEASE_FIELDS)]

    @retried
    def fleet(self, own: str, now: datetime) -> Sequence[Announced]:
        """What live processes announced that run other code than ``own``, each kind once.

        One whose lease has just run out counts for a while: it may only have been kept from renewing it.
        """
        alive = self.rows(WorkerLease).filter(expires_at__gt=now - STARVED).exclude(code__in=("", own))
        kinds = alive.order_by("code", "queues").values("code", "queues").annotate(name=Min("node"), behind=Max("lag"))
        return [
            Announced(node=name, code=code, queues=tuple(queues.split("\n")) if queues else (), lag=behind)
            for name, code, queues, behind in kinds.values_list("name", "code", "queues", "behind")
        ]

    @retried
    def bury_lease(self, lease_id: UUID, now: datetime, *, expired_by: datetime | None = None) -> bool:
        """Declare a lease dead; with ``expired_by`` only if it expired before that. True for the one who did it."""
        alive = self.rows(WorkerLease).filter(pk=lease_id, dead_at__isnull=True)
        if expired_by is not None:
            alive = alive.filter(expires_at__lt=expired_by)
        return bool(alive.update(dead_at=now))

    @retried
    def close_lease(self, lease_id: UUID) -> None:
        """Remove a lease whose process ends in good order."""
        self.rows(WorkerLease).filter(pk=lease_id).delete()

    @retried
    def claims(self, *, lease_id: UUID | None = None, pid: int | None = None, limit: int = 1000) -> Sequence[OpenStep]:
        """RUNNING and ABANDONED steps of one lease (and child), or of all dead and vanished leases; by id.

        Those of paused, blocked and closed instances too: whoever ran them is gone all the same.
        """
        claimed = self.rows(StepResult).filter(state__in=(t.RUNNING, t.ABANDONED), lease_id__isnull=False)
        if lease_id is not None:
            claimed = claimed.filter(lease_id=lease_id)
        else:
            claimed = claimed.filter(
                ~Exists(self.rows(WorkerLease).filter(pk=OuterRef("lease_id"), dead_at__isnull=True))
            )
        if pid is not None:
            claimed = claimed.filter(pid=pid)
        # In the order of its index: for that of ids SQLite would read the whole table, ended rows and all.
        found = claimed.order_by("lease_id", "id").values_list(*rows.STEP_FIELDS)[:limit]
        return sorted((rows.open_step(values) for values in found), key=lambda step: step.id)
