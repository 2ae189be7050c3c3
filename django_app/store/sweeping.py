"""What the tick asks for: rows whose time has come, each statement by an index that holds no parked row."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.db.models import Case, F, Q, QuerySet, Value, When

from django_app.models import EngineHeartbeat, StepResult, WorkflowInstance
from django_app.models.moments import MomentField
from django_app.store import rows
from django_app.store.attempts import WORKING
from django_app.store.connected import Connected, chunks
from django_app.store.retries import retried
from durable_celery.core import transitions as t
from durable_celery.ports import EndedMembers, InstanceRow, OpenStep

EARLY = 0.9  # of the interval: ticks that follow each other by the same clock must not miss every other one
GAP, SHORTEST_GAP = 5, timedelta(seconds=5)  # intervals without a tick after which health counts anew
ENDED_MEMBER = Q(mapped=True, state__in=t.STEP_FINAL)
TOGETHER = 200  # workflows asked for in one statement; SQLite takes no deeper condition than 1000


class Sweeping(Connected):
    """Winning a tick, and its work."""

    @retried
    def take_tick(self, now: datetime, interval: timedelta, by: str) -> datetime | None:
        """Win this interval's tick; None if another did, else since when ticks have run without a gap."""
        if not self._take_tick(now, interval, by):
            if self.rows(EngineHeartbeat).filter(pk=1).exists():
                return None
            self.rows(EngineHeartbeat).bulk_create([EngineHeartbeat(pk=1)], ignore_conflicts=True)
            if not self._take_tick(now, interval, by):
                return None
        since: datetime | None = self.rows(EngineHeartbeat).filter(pk=1).values_list("healthy_since", flat=True).first()
        return since or now

    def _take_tick(self, now: datetime, interval: timedelta, by: str) -> bool:
        gap = max(interval * GAP, SHORTEST_GAP)
        # A tick far ahead was made by a clock that has been set back since.
        broken = Q(last_tick_at__isnull=True) | Q(last_tick_at__lt=now - gap) | Q(last_tick_at__gt=now + gap)
        due = self.rows(EngineHeartbeat).filter(broken | Q(last_tick_at__lt=now - interval * EARLY), pk=1)
        anew = When(broken | Q(healthy_since__isnull=True), then=Value(now, output_field=MomentField()))
        # MySQL assigns from left to right: the old last_tick_at is read first.
        return bool(
            due.update(
                healthy_since=Case(anew, default=F("healthy_since"), output_field=MomentField()),
                last_tick_by=by[:255],
                last_tick_at=now,
            )
        )

    @retried
    def note_beat(self, now: datetime, interval: timedelta) -> None:
        """A tick that Beat had sent was taken; noted once an interval, in a row that ``take_tick`` inserts."""
        old = Q(beat_at__isnull=True) | Q(beat_at__lt=now - interval * EARLY) | Q(beat_at__gt=now)
        self.rows(EngineHeartbeat).filter(old, pk=1).update(beat_at=now)

    @retried
    def due_steps(self, now: datetime, limit: int) -> Sequence[OpenStep]:
        """Rows whose ``look_at`` has come, oldest first; none of paused, blocked or closed instances, no ended members
        of maps (``ended_members``)."""
        found = self._looked_at_steps().filter(look_at__lte=now).exclude(ENDED_MEMBER)
        return [rows.open_step(values) for values in found.values_list(*rows.STEP_FIELDS)[:limit]]

    @retried
    def ended_members(self, now: datetime, limit: int) -> Sequence[EndedMembers]:
        """Members of maps whose ``look_at`` has come after their end, by map."""
        due = self._looked_at_steps().filter(ENDED_MEMBER, look_at__lte=now)
        found: dict[tuple[UUID, str], list[int]] = defaultdict(list)
        for pk, instance_id, join in due.values_list("id", "instance_id", "join")[:limit]:
            found[instance_id, join or ""].append(pk)
        return [EndedMembers(instance_id=pk, join=join, ids=tuple(ids)) for (pk, join), ids in found.items()]

    @retried
    def unlook_members(self, ended: EndedMembers, look_at: datetime | None) -> None:
        """Look at none of these rows again, but at one of them at ``look_at``."""
        kept = ended.ids[:1] if look_at is not None else ()
        for some in chunks(ended.ids[len(kept) :]):
            self.rows(StepResult).filter(pk__in=some).update(look_at=None)
        if kept:
            self.rows(StepResult).filter(pk__in=kept, look_at__isnull=False).update(look_at=look_at)

    @retried
    def postpone_step(self, step: OpenStep, look_at: datetime | None, *, resends: int | None = None) -> bool:
        """Move ``look_at`` if nobody else has: of two sweeps with the same row in hand, one acts."""
        seen = self.rows(StepResult).filter(pk=step.id, state=step.state, attempt=step.attempt)
        if step.look_at is None:
            seen = seen.filter(look_at__isnull=True)
        else:
            seen = seen.filter(look_at=step.look_at)
        values: dict[str, Any] = {"look_at": look_at}
        if resends is not None:
            values["resends"] = resends
        return bool(seen.update(**values))

    @retried
    def due_instances(self, now: datetime, limit: int) -> Sequence[InstanceRow]:
        """Instances whose ``look_at`` has come, oldest first, without big texts; none paused, blocked or closed."""
        found = self._looked_at_instances().filter(look_at__lte=now)
        return [rows.instance_row(values) for values in found.values(*rows.SWEPT_INSTANCE_FIELDS)[:limit]]

    @retried
    def blocked(self, known: Mapping[tuple[str, int], str], limit: int) -> Sequence[UUID]:
        """BLOCKED instances of these workflows that this fingerprint has not tried yet, those blocked longest first."""
        found: list[UUID] = []
        for some in chunks(known.items(), TOGETHER):
            untried = Q()
            for (name, version), fingerprint in some:
                untried |= Q(name=name, version=version) & ~Q(blocked_by__contains=fingerprint)
            blocked = self.rows(WorkflowInstance).filter(untried, state=t.BLOCKED, paused_at__isnull=True)
            for pk, name, version in blocked.order_by("waiting_since").values_list("id", "name", "version")[:limit]:
                if (name, version) in known:  # collations may take one name for another
                    found.append(pk)
            if len(found) >= limit:
                break
        return found[:limit]

    @retried
    def next_look(self) -> datetime | None:
        """The earliest ``look_at`` of steps and instances that the sweep would act on."""
        firsts = [
            found.values_list("look_at", flat=True).first()
            for found in (self._looked_at_steps(), self._looked_at_instances())
        ]
        return min((first for first in firsts if first is not None), default=None)

    def _looked_at_steps(self) -> QuerySet[Any]:
        ordered = self.rows(StepResult).order_by("look_at", "id")
        found: QuerySet[Any] = ordered.filter(
            look_at__isnull=False, instance__state__in=WORKING, instance__paused_at__isnull=True
        )
        return found

    def _looked_at_instances(self) -> QuerySet[Any]:
        ordered = self.rows(WorkflowInstance).order_by("look_at", "id")
        found: QuerySet[Any] = ordered.filter(look_at__isnull=False, state__in=WORKING, paused_at__isnull=True)
        return found
