"""The members of maps: inserted, sent, given up and summed up by map, never looked at one by one in a turn."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from itertools import islice
from typing import Any
from uuid import UUID

from django.db.models import Count, Q, QuerySet

from django_app.models import StepResult
from django_app.store import keysets, rows
from django_app.store.clock import Clock
from django_app.store.closing import UNCLAIMED, Closing
from django_app.store.connected import CHUNK, by_size
from django_app.store.retries import retried
from durable_celery import faults
from durable_celery.core import journal
from durable_celery.core import transitions as t
from durable_celery.core.summaries import Summary, outcomes_of
from durable_celery.ports import Dispatch, NewMembers, OpenStep, Progress, TurnCommit

PAGE = 2000  # rows read at once


class Maps(Closing, Clock):
    """What turns and sweeps need of members."""

    # -- parts of a turn's transaction -----------------------------------------------------------------------------

    def insert_members(self, commit: TurnCommit) -> None:
        """Page by page; of a queryset, how many there are is known only then."""
        for position, new in commit.members.items():
            count = 0
            for some in by_size(_member_rows(commit, position, new)):
                self.rows(StepResult).bulk_create(some)
                count += len(some)
                faults.reach("turn.members_in_transaction")
            mine = self.rows(StepResult).filter(instance_id=commit.instance_id, position=position)
            mine.exclude(members=count).update(members=count)

    def give_up_members(self, commit: TurnCommit) -> None:
        """One statement for each kind of giving up."""
        if commit.given_up_maps:
            self.abandon_steps(self._members_of(commit.instance_id, commit.given_up_maps), commit.now, commit.turn)
        if commit.halted:
            unclaimed = self._members_of(commit.instance_id, commit.halted) & Q(state__in=UNCLAIMED)
            self.abandon_steps(unclaimed, commit.now, commit.turn)

    def _members_of(self, instance_id: UUID, positions: Iterable[str]) -> Q:
        return Q(instance_id=instance_id, group__in=list(positions), mapped=True)

    # -- reading ---------------------------------------------------------------------------------------------------

    def summed_up(self, instance_id: UUID, entries: Sequence[journal.Entry]) -> Sequence[journal.Entry]:
        """The entries, open maps with their summary. One statement; and, of a map that has just ended, its members."""
        unknown = [entry for entry in entries if entry.kind == journal.MAP and _is_unknown(entry)]
        if not unknown:
            return entries
        counted = self._counts(self._members_of(instance_id, [entry.position for entry in unknown]))
        summaries = {
            entry.position: self._summary(instance_id, entry, counted[instance_id, entry.position]) for entry in unknown
        }
        return [replace(entry, summary=summaries.get(entry.position)) for entry in entries]

    def _summary(self, instance_id: UUID, entry: journal.Entry, counts: Mapping[str, int]) -> Summary:
        summary = Summary(counts=counts)
        if not summary.drained and entry.state == t.SCHEDULED:
            return summary
        ends: list[datetime] = []
        outcomes = outcomes_of(entry.members, self._ended(instance_id, entry.position, ends))
        return replace(summary, outcomes=outcomes, ended_at=max(ends, default=None))

    def _ended(self, instance_id: UUID, position: str, ends: list[datetime]) -> Iterator[tuple[Any, ...]]:
        """Rows of ended members, a page at a time; ``ends`` gets the latest time of their ends so far."""
        ended = self.rows(StepResult).filter(
            self._members_of(instance_id, [position]), state__in=(t.SUCCEEDED, t.FAILED)
        )
        names = ("id", "position", "state", "result", "failure", "attempt", "finished_at")
        for place, state, result, failure, attempt, finished_at in _pages(ended, names):
            ends[:] = [max(x for x in (*ends, finished_at) if x is not None)] if finished_at or ends else []
            yield int(place.rpartition(".")[2]), state, result, failure, attempt

    def _counts(self, wanted: Q) -> Mapping[tuple[UUID, str], dict[str, int]]:
        """Of each map its members by state; read from the index alone."""
        counts: dict[tuple[UUID, str], dict[str, int]] = defaultdict(dict)
        grouped = self.rows(StepResult).filter(wanted).values_list("instance_id", "group", "state")
        for instance_id, group, state, count in grouped.annotate(count=Count("pk")).order_by():
            counts[instance_id, group][state] = count
        return counts

    @retried
    def map_progress(self, instance_ids: Sequence[UUID]) -> Mapping[tuple[UUID, str], Progress]:
        """How far the open maps of these instances are, by instance and position; at most two statements."""
        found = self.rows(StepResult).filter(
            instance_id__in=list(instance_ids), kind=journal.MAP, state=t.SCHEDULED, mapped=False
        )
        members = {(pk, position): n for pk, position, n in found.values_list("instance_id", "position", "members")}
        if not members:
            return {}
        positions = {position for _, position in members}
        counted = self._counts(
            Q(instance_id__in={pk for pk, _ in members}, group__in=positions, mapped=True, state__in=t.STEP_FINAL)
        )
        return {
            key: Progress(ended=sum(counted[key].values()), failed=counted[key].get(t.FAILED, 0), members=count)
            for key, count in members.items()
        }

    def with_progress(self, steps: Sequence[OpenStep]) -> Sequence[OpenStep]:
        """The rows, each open map with how far it is; no statement where there is none."""
        ids = {step.instance_id for step in steps if step.kind == journal.MAP}
        if not ids:
            return steps
        known = self.map_progress(list(ids))
        return [replace(step, progress=known.get((step.instance_id, step.position))) for step in steps]

    # -- querysets -------------------------------------------------------------------------------------------------

    def keys_of(self, queryset: Any) -> Any:
        """The queryset as a source of primary keys, without asking the database; ``BadValue`` if it cannot be one."""
        return keysets.source_of(queryset)

    def primary_keys(self, source: Any) -> Iterable[Any]:
        """The keys of what ``keys_of`` gave, in order, read in pages."""
        return keysets.primary_keys(source)

    # -- sending ---------------------------------------------------------------------------------------------------

    def member_dispatches(self, instance_id: UUID, positions: Sequence[str]) -> Iterable[Sequence[Dispatch]]:
        """What is needed to publish the members of these maps that may start, page by page."""
        waiting = self.rows(StepResult).filter(self._members_of(instance_id, positions), state=t.SCHEDULED)
        last = 0
        while page := self._dispatch_page(waiting, last):
            yield page
            last = page[-1].step_id

    @retried
    def _dispatch_page(self, waiting: QuerySet[Any], last: int) -> Sequence[Dispatch]:
        found = waiting.filter(pk__gt=last).order_by("pk").values_list(*rows.DISPATCH_FIELDS)[:CHUNK]
        return [rows.dispatch(*values) for values in found]

    # -- retry() ---------------------------------------------------------------------------------------------------

    def reopen_members(self, instance_id: UUID, turn: int, now: datetime, anew: Mapping[str, Any]) -> None:
        """Of maps that this turn ended or gave up: what failed, and what it gave up, may start (again).

        Before the maps' own rows are open again; ``anew`` are the values of a row that starts afresh. Under a limit all
        of these are held first, and as many let go as may run at once.
        """
        maps = self.rows(StepResult).filter(instance_id=instance_id, kind=journal.MAP, ended_turn=turn)
        for position, state in maps.values_list("position", "state"):
            members = self.rows(StepResult).filter(self._members_of(instance_id, [position]))
            again = Q(state=t.CANCELLED, ended_turn=turn)
            if state == t.FAILED:
                again |= Q(state=t.FAILED)
            members.filter(again, limited=False).update(**anew)
            members.filter(again, limited=True).update(**{**anew, "state": t.HELD, "look_at": None})
            members.filter(state=t.ABANDONED).update(state=t.RUNNING, abandoned=False, ended_turn=None)
            members.filter(ended_turn=turn).update(abandoned=False, ended_turn=None)
            self._let_go(instance_id, position, now)

    def _let_go(self, instance_id: UUID, position: str, now: datetime) -> None:
        limit = keysets.limit_of(self.rows(StepResult).get(instance_id=instance_id, position=position).options)
        members = self.rows(StepResult).filter(self._members_of(instance_id, [position]))
        running = members.filter(state__in=(t.SCHEDULED, t.RETRYING, t.RUNNING, t.EXTERNAL)).count()
        if limit is not None and running < limit:
            held = members.filter(state=t.HELD).order_by("pk").values_list("pk", flat=True)[: limit - running]
            self.rows(StepResult).filter(pk__in=list(held)).update(state=t.SCHEDULED, scheduled_at=now, look_at=now)


def _is_unknown(entry: journal.Entry) -> bool:
    """Whether what became of the members is not on its own row: it is open, or that would have been too long for it."""
    if entry.abandoned or entry.state == t.CANCELLED:
        return False
    return entry.state == t.SCHEDULED or (entry.result is None and entry.members > 0)


def _member_rows(commit: TurnCommit, position: str, new: NewMembers) -> Iterator[StepResult]:
    for index, call in enumerate(new.calls()):
        held = new.limit is not None and index >= new.limit
        yield StepResult(
            instance_id=commit.instance_id, position=f"{position}.{index}", kind=journal.STEP, name=new.name,
            state=t.HELD if held else t.SCHEDULED, args=call, options=new.options, queue=new.queue, group=position,
            join=new.join, mapped=True, limited=new.limit is not None, shielded=new.shielded, scheduled_at=commit.now,
            start_by_at=None if held else new.start_by_at, end_by_at=None if held else new.end_by_at,
            look_at=None if held else new.look_at,
        )  # fmt: skip


def _pages(found: QuerySet[Any], names: Sequence[str]) -> Iterator[tuple[Any, ...]]:
    """Rows by id, without it, a page at a time; ``names`` begin with the id."""
    last = 0
    while True:
        page = list(found.filter(pk__gt=last).order_by("pk").values_list(*names)[:PAGE])
        yield from (row[1:] for row in islice(page, PAGE))
        if len(page) < PAGE:
            return
        last = page[-1][0]
