"""Slots of schedules: each is taken once, by whoever comes first."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta

from django_app.models import ScheduleSlot
from django_app.store.retries import retried
from django_app.store.starting import Starting
from durable_celery.ports import Created, NewInstance


class Slots(Starting):
    """A slot is taken in the transaction that starts its instance, so it is taken exactly if the instance exists."""

    @retried
    def start_slots(
        self,
        schedule: str,
        slot_at: datetime,
        *,
        every: timedelta | None,
        behind: int,
        make: Callable[[datetime], NewInstance],
    ) -> Sequence[Created]:
        """Start an instance for ``slot_at`` and for up to ``behind`` slots missed just before, unless somebody has."""
        with self.atomic():
            return self.create([make(at) for at in self._take_slots(schedule, slot_at, every, behind)])

    def _take_slots(self, schedule: str, slot_at: datetime, every: timedelta | None, behind: int) -> list[datetime]:
        """The slots that are the caller's now; the row stays locked until the end of the transaction."""
        key = hashlib.sha256(schedule.encode("utf-8", "surrogatepass")).hexdigest()
        row = ScheduleSlot(schedule_hash=key, schedule=schedule[:255], slot_at=None)
        self.rows(ScheduleSlot).bulk_create([row], ignore_conflicts=True)
        mine = self.rows(ScheduleSlot).filter(schedule_hash=key)
        if self.connection.features.has_select_for_update:
            mine = mine.select_for_update()
        last: datetime | None = mine.values_list("slot_at", flat=True).get()
        if last is not None and last >= slot_at:
            return []
        taken = self.rows(ScheduleSlot).filter(schedule_hash=key, slot_at=last)
        if last is None:
            taken = self.rows(ScheduleSlot).filter(schedule_hash=key, slot_at__isnull=True)
        if not taken.update(slot_at=slot_at):
            return []
        missed: list[datetime] = []
        if last is not None and every is not None and slot_at - last <= every * (behind + 1):
            at = last + every
            while at < slot_at:
                missed.append(at)
                at += every
        return [*missed, slot_at]
