"""Counting the turns that took their process along; the commit of a turn sets it back."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from django.db.models import F

from django_app.models import WorkflowInstance
from django_app.store.connected import Connected
from django_app.store.retries import retried
from durable_celery.core import transitions as t


class LostTurns(Connected):
    """Notes on an instance that are no turn: its revision stays."""

    @retried
    def count_turn_death(self, instance_id: UUID) -> tuple[int, str]:
        """One more process died in a turn of this run; how many since the last committed turn, and its queue.

        0 if it is not open any more. A blocked one is tried by other code, and counts as well.
        """
        mine = self.rows(WorkflowInstance).filter(pk=instance_id, state__in=t.OPEN_STATES)
        if not mine.update(turn_deaths=F("turn_deaths") + 1, turn_begun_at=None):
            return 0, ""
        found: tuple[int, str] | None = mine.values_list("turn_deaths", "queue").first()
        return found or (0, "")

    @retried
    def note_late_turn(self, instance_id: UUID, revision: int, deaths: int, now: datetime) -> bool:
        """A turn at this revision begins, after so many lost ones; False if another was committed meanwhile."""
        mine = self.rows(WorkflowInstance).filter(pk=instance_id, revision=revision, state__in=t.OPEN_STATES)
        return bool(mine.update(turn_deaths=deaths, turn_begun_at=now))
