"""Which instances have become stuck since the last look, each told to one caller."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from django.db.models import F, Q

from django_app.models import EngineHeartbeat, WorkflowInstance
from django_app.store.connected import Connected
from django_app.store.retries import retried
from durable_celery.ports import Stuck

EVERY = timedelta(seconds=5)  # between two looks
SLACK = timedelta(hours=1)  # how much later than its own time a row may be written
MOMENTS = ("expected_at", "warn_at")


class StuckOnes(Connected):
    """A stuck period begins when a moment that lies after the last one told has passed."""

    def newly_stuck(self, now: datetime, limit: int) -> Sequence[Stuck]:
        """Open instances that have become stuck since they were last told of; ``stuck_at`` says that they were.

        The heartbeat keeps how far was looked, so the long stuck are not read again and again.
        """
        looked_at = self._looked_at()
        if looked_at is not None and now - EVERY < looked_at <= now:
            return []
        told: list[Stuck] = []
        complete = True
        for moment in MOMENTS:
            found = self._late(moment, now, looked_at, limit)
            complete = complete and len(found) < limit
            told += [stuck for row in found if (stuck := self._tell_of(row, now)) is not None]
        if complete:
            self._note_look(looked_at, now)
        return told

    # Each repeated by itself: to begin all over would forget whom it has taken to tell of.

    @retried
    def _looked_at(self) -> datetime | None:
        rows = self.rows(EngineHeartbeat).filter(pk=1)
        looked_at: datetime | None = rows.values_list("stuck_looked_at", flat=True).first()
        return looked_at

    @retried
    def _note_look(self, before: datetime | None, now: datetime) -> None:
        self.rows(EngineHeartbeat).filter(pk=1, stuck_looked_at=before).update(stuck_looked_at=now)

    @retried
    def _late(self, moment: str, now: datetime, looked_at: datetime | None, limit: int) -> list[dict[str, Any]]:
        untold = Q(stuck_at__isnull=True) | Q(stuck_at__lt=F(moment))
        found = self.rows(WorkflowInstance).filter(untold, finished_at__isnull=True, **{f"{moment}__lt": now})
        if looked_at is not None:
            found = found.filter(**{f"{moment}__gte": min(looked_at, now) - SLACK})
        return list(found.order_by(moment).values("id", "name", "key", "waiting_for", "stuck_at", *MOMENTS)[:limit])

    @retried
    def _tell_of(self, row: dict[str, Any], now: datetime) -> Stuck | None:
        """By the old ``stuck_at``: of two ticks with the same row in hand, one tells."""
        told_at = row["stuck_at"]
        mine = self.rows(WorkflowInstance).filter(pk=row["id"], finished_at__isnull=True)
        mine = mine.filter(stuck_at__isnull=True) if told_at is None else mine.filter(stuck_at=told_at)
        if not mine.update(stuck_at=now):
            return None
        passed = [row[moment] for moment in MOMENTS if row[moment] is not None and row[moment] < now]
        since = min(moment for moment in passed if told_at is None or moment > told_at)
        return Stuck(
            instance_id=row["id"], name=row["name"], key=row["key"], since=since, waiting_for=row["waiting_for"]
        )
