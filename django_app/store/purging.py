"""Removing whole trees of ended instances, a short transaction at a time; what finds a tree again is removed last.

The mailbox of a tree's root is its mark: once it says ``DOOMED`` nothing in the tree can be retried, so a purge that
was killed half way goes on where it was. Nobody but another purge writes rows of a doomed tree.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db.models import F, Q, QuerySet

from django_app.models import (
    Mailbox,
    Marker,
    Message,
    ScheduleSlot,
    StepAttempt,
    StepResult,
    WorkerLease,
    WorkflowInstance,
    WorkflowKey,
)
from django_app.store.connected import Connected, chunks
from django_app.store.retries import retried
from durable_celery import faults
from durable_celery.core import transitions as t
from durable_celery.errors import NotRetryable
from durable_celery.ports import EndedRoot, Removed

INSTANCES = 200  # in one transaction
ROWS = 2000  # steps, or messages, in one
DOOMED = "purged"  # in ``Mailbox.opened_by``, where starts write what they drew
PLACE = "durable_celery.purge"  # the row of slots that the one purge holds; those of schedules are hashes
INNER = Q(parent_id__isnull=False) | Q(state=t.CONTINUED)  # runs that no tree is found by


class Purging(Connected):
    """Each method is its own short transaction."""

    @retried
    def hold_purge(self, now: datetime, until: datetime | None, held: datetime | None = None) -> bool:
        """Take the place of the one purge up to ``until``, or keep (None: leave) the one ``held``; False: another's."""
        rows = self.rows(ScheduleSlot)
        if held is None:
            rows.bulk_create([ScheduleSlot(schedule_hash=PLACE, schedule=PLACE)], ignore_conflicts=True)
        free = Q(slot_at__isnull=True) | Q(slot_at__lt=now)  # whoever held it is dead
        mine = free if held is None else Q(slot_at=held)
        return bool(rows.filter(mine, schedule_hash=PLACE).update(slot_at=until))

    @retried
    def ended_roots(self, before: datetime, after: EndedRoot | None, limit: int) -> Sequence[EndedRoot]:
        """Chains without a parent that ended before ``before``, the longest ended first, from behind ``after`` on."""
        ended = self.rows(WorkflowInstance).filter(finished_at__lt=before, parent_id__isnull=True)
        if after is not None:
            later = Q(finished_at__gt=after.finished_at) | Q(finished_at=after.finished_at, id__gt=after.run_id)
            ended = ended.filter(later, finished_at__gte=after.finished_at)
        ended = ended.exclude(state=t.CONTINUED).order_by("finished_at", "id")
        return [
            EndedRoot(run_id=pk, root_id=root_id, finished_at=finished_at)
            for pk, root_id, finished_at in ended.values_list("id", "root_id", "finished_at")[:limit]
        ]

    @retried
    def doom(self, root_ids: Collection[UUID], before: datetime, *, mark: bool = True) -> Collection[UUID]:
        """Of these trees those in which everything ended before ``before``; with ``mark`` none can be retried now.

        Whoever retries an instance looks at the mark under its lock, after its own row has changed: either it sees the
        mark, or this sees the open row.
        """
        with self.atomic():
            doors = self.rows(Mailbox).filter(pk__in=root_ids).order_by("pk")
            if mark and self.connection.features.has_select_for_update:
                list(doors.select_for_update().values_list("pk", flat=True))
            elif mark:  # the lock of the one writer
                doors.order_by().update(opened_by=F("opened_by"))
            young = self.rows(WorkflowInstance).filter(
                Q(finished_at__isnull=True) | Q(finished_at__gte=before), root_id__in=root_ids
            )
            whole = set(root_ids) - set(young.values_list("root_id", flat=True).distinct())
            if mark:
                self.rows(Mailbox).filter(pk__in=whole).exclude(opened_by=DOOMED).update(opened_by=DOOMED)
            return whole

    @retried
    def count_trees(self, root_ids: Collection[UUID]) -> Removed:
        """The rows of these trees."""
        runs = self.rows(WorkflowInstance).filter(root_id__in=root_ids)
        instances = list(runs.values_list("pk", "chain_id"))
        steps = messages = 0
        for some in chunks(instances):
            steps += self.rows(StepResult).filter(instance_id__in=[pk for pk, _ in some]).count()
        for chains in chunks({chain_id for _, chain_id in instances}):
            messages += self.rows(Message).filter(chain_id__in=chains).count()
        return Removed(instances=len(instances), steps=steps, messages=messages)

    @retried
    def remove_some(self, root_ids: Collection[UUID]) -> Removed | None:
        """Remove some rows of doomed trees, children and earlier runs before what the trees are found by.

        None if nothing is left of them.
        """
        trees = self.rows(WorkflowInstance).filter(root_id__in=root_ids).order_by()
        keyed = list(trees.filter(key_hash__isnull=False).values_list("pk", "chain_id", "key_hash")[:INSTANCES])
        if keyed:
            self._forget_keys(keyed)
            return Removed()
        found = self._next_runs(trees)
        if not found:
            return None
        with self.atomic():
            runs = self._locked(found)
            if not runs:
                return Removed()  # another purge was faster
            steps = self._remove_steps([pk for pk, *_ in runs])
            messages = self._remove_messages({chain_id for _, chain_id, *_ in runs})
            full = steps >= ROWS or messages >= ROWS
            instances = 0 if full else self._remove_runs(runs)
            faults.reach("purge.in_transaction")
            return Removed(instances=instances, steps=steps, messages=messages)

    @retried
    def remove_leases(self, before: datetime) -> int:
        """Remove leases that were declared dead before then; a claim without a lease row counts as a dead one's."""
        dead = self.rows(WorkerLease).filter(dead_at__lt=before)
        return _delete(dead)

    def check_not_doomed(self, run_id: UUID) -> None:
        """In a transaction that has reopened a run: ``NotRetryable`` if its tree is being purged."""
        root_id = self.rows(WorkflowInstance).filter(pk=run_id).values_list("root_id", flat=True).get()
        door = self.rows(Mailbox).filter(pk=root_id)
        if self.connection.features.has_select_for_update:
            door = door.select_for_update()
        if door.values_list("opened_by", flat=True).first() == DOOMED:
            text = f"instance {run_id} has ended too long ago and is being purged; start a new one instead"
            raise NotRetryable(text, instance_id=str(run_id))

    # -- parts of one transaction ----------------------------------------------------------------------------------

    def _forget_keys(self, keyed: Sequence[tuple[UUID, UUID, str]]) -> None:
        """Before anything else, lest somebody finds by its key what is only half there.

        A key that is open again, or was used since, stays, and only forgets the chain that goes.
        """
        chains = {chain_id for _, chain_id, _ in keyed}
        mine = self.rows(WorkflowKey).filter(hash__in={key_hash for *_, key_hash in keyed}, last_id__in=chains)
        with self.atomic():
            if self.connection.features.has_select_for_update:
                # In the order of every start: a deadlock might end the transaction of the one who starts.
                list(mine.order_by("hash").select_for_update().values_list("pk", flat=True))
            _delete(mine.filter(open_id__isnull=True))
            mine.filter(open_id__isnull=False).update(last_id=None, last_state="")
            self.rows(WorkflowInstance).filter(pk__in=[pk for pk, *_ in keyed]).update(key_hash=None)

    def _next_runs(self, trees: QuerySet[Any]) -> list[UUID]:
        for some in (trees.filter(INNER), trees):
            found = list(some.values_list("pk", flat=True)[:INSTANCES])
            if found:
                return found
        return []

    def _locked(self, run_ids: Sequence[UUID]) -> list[tuple[UUID, UUID, UUID]]:
        rows = self.rows(WorkflowInstance).filter(pk__in=run_ids).order_by("pk")
        if self.connection.features.has_select_for_update:
            rows = rows.select_for_update()
        else:  # SQLite refuses the lock of the one writer to a transaction that has read what another then changed
            rows.filter(pk=run_ids[0]).order_by().update(revision=F("revision"))
        return list(rows.values_list("pk", "chain_id", "root_id"))

    def _remove_steps(self, run_ids: Sequence[UUID]) -> int:
        steps = self.rows(StepResult).filter(instance_id__in=run_ids).order_by()
        pks = list(steps.values_list("pk", flat=True)[:ROWS])
        for some in chunks(pks):
            _delete(self.rows(StepAttempt).filter(step_id__in=some))
            _delete(self.rows(StepResult).filter(pk__in=some))
        return len(pks)

    def _remove_messages(self, chain_ids: Iterable[UUID]) -> int:
        messages = self.rows(Message).filter(chain_id__in=chain_ids).order_by()
        pks = list(messages.values_list("pk", flat=True)[:ROWS])
        for some in chunks(pks):
            _delete(self.rows(Message).filter(pk__in=some))
        return len(pks)

    def _remove_runs(self, runs: Sequence[tuple[UUID, UUID, UUID]]) -> int:
        ids = [pk for pk, *_ in runs]
        _delete(self.rows(Marker).filter(instance_id__in=ids))
        removed = _delete(self.rows(WorkflowInstance).filter(pk__in=ids))
        chains, roots = {chain_id for _, chain_id, _ in runs}, {root_id for *_, root_id in runs}
        still_there = self.rows(WorkflowInstance).filter(root_id__in=roots)
        gone = roots - set(still_there.values_list("root_id", flat=True).distinct())
        # A tree that is half there keeps the mark.
        _delete(self.rows(Mailbox).filter(pk__in=(chains - roots) | gone))
        return removed


def _delete(rows: QuerySet[Any]) -> int:
    """Without Django's collector: what hangs on the rows is gone already, and nobody's signals are meant."""
    deleted: int = rows._raw_delete(rows.db)
    return deleted or 0
