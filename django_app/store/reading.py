"""Reading instances: for a turn, a handle, a page. The number of queries never grows with history."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any
from uuid import UUID

from django.db.models import (
    BooleanField,
    Exists,
    ExpressionWrapper,
    OuterRef,
    Q,
    QuerySet,
    Subquery,
)

from django_app.models import Marker, Message, StepResult, WorkflowInstance
from django_app.models.querysets import IN_JOURNAL, NO_STEP, OUTCOME
from django_app.store import entries, recent, rows
from django_app.store.maps import Maps
from django_app.store.retries import retried
from durable_celery.core import identity, journal
from durable_celery.core import transitions as t
from durable_celery.ports import InstanceRow, Loaded, OpenStep

RUNNING_MEMBERS = (t.SCHEDULED, *t.CLAIMED[:2], t.RETRYING)  # HELD ones start only while another runs, or never

HISTORY = {
    "position": "position", "kind": "kind", "name": "name", "state": "state", "args": "args", "result": "result",
    "error": "failure", "attempts": "attempt", "scheduled_at": "scheduled_at", "started_at": "started_at",
    "finished_at": "finished_at", "turn": "taken_turn",
}  # fmt: skip


class Reading(Maps):
    """Everything that only reads an instance."""

    @retried
    def find(self, instance_id: UUID) -> InstanceRow | None:
        """The newest run of the chain with this id; of a later run's id, that of its chain."""
        found = self._last_run(instance_id)
        if found is None:
            chains = self.rows(WorkflowInstance).filter(pk=instance_id).values_list("chain_id", flat=True)
            chain_id = chains.first()
            found = self._last_run(chain_id) if chain_id is not None else None
        return found

    @retried
    def find_by_key(self, name: str, key: str) -> InstanceRow | None:
        """The open instance with this key, else the newest closed one; followed if it went on under another name."""
        hashed, everyone = identity.key_hash(name, key), self.rows(WorkflowInstance)
        found = _first(everyone.filter(open_key=hashed))
        if found is None:
            found = _first(everyone.filter(key_hash=hashed).order_by("-created_at", "-id"))
        return self._last_run(found.chain_id) if found is not None and found.state == t.CONTINUED else found

    def _last_run(self, chain_id: UUID) -> InstanceRow | None:
        return _first(self.rows(WorkflowInstance).filter(chain_id=chain_id).order_by("-run_number"))

    @retried
    def load(self, instance_id: UUID, *, args: bool = False, newest: bool = False) -> Loaded | None:
        """The instance and its journal, entries and messages by id; two queries, and one each for messages and markers.

        ``args``: with the encoded arguments of each entry, which replay does not need. ``newest``: of a run that has
        continued as another, the newest run of its chain instead (one query more).
        """
        mine = self.rows(Message).filter(instance_id=OuterRef("pk"), taken_turn__isnull=False)
        new = self.rows(Message).filter(chain_id=OuterRef("chain_id"), taken_turn__isnull=True)
        found = self.rows(WorkflowInstance).annotate(
            has_messages=Exists(mine) | Exists(new),
            has_markers=Exists(self.rows(Marker).filter(instance_id=OuterRef("pk"))),
            parent_chain_id=Subquery(
                self.rows(WorkflowInstance).filter(pk=OuterRef("parent_id")).values("chain_id")[:1]
            ),
        ).values(*rows.INSTANCE_FIELDS, "has_messages", "has_markers", "parent_chain_id")  # fmt: skip
        values = found.filter(pk=instance_id).first()
        if newest and values is not None and values["state"] == t.CONTINUED:
            values = found.filter(chain_id=values["chain_id"]).order_by("-run_number").first()
        if values is None:
            return None
        has_messages, has_markers = values.pop("has_messages"), values.pop("has_markers")
        run = rows.instance_row(values)
        stored = journal.Journal(
            instance_id=str(run.id),
            entries=self.summed_up(run.id, self._entries(run, args=args)),
            messages=self._messages(run) if has_messages else (),
            markers=self._markers(run.id) if has_markers else {},
        )
        return Loaded(instance=run, journal=stored)

    def _entries(self, run: InstanceRow, *, args: bool) -> Sequence[journal.Entry]:
        rows_of_run = self.rows(StepResult).filter(IN_JOURNAL, instance_id=run.id).order_by("id")
        if args:
            return entries.read(rows_of_run, args=True)
        kept = self._recent.of(run)
        if kept is not None:
            new = Q(taken_turn__isnull=True) | Q(taken_turn__gt=kept.turn) | Q(kind=journal.MAP)
            rows_of_run = rows_of_run.filter(new)
        read = entries.read(rows_of_run, args=False)
        if not self.in_transaction():
            self._recent.keep(run, kept, read)
        return read if kept is None else recent.together(kept, read)

    @cached_property
    def _recent(self) -> recent.Recent:
        return recent.Recent()

    def _messages(self, run: InstanceRow) -> Sequence[journal.Message]:
        """Those this run took in, and those of its chain that no run took in yet."""
        mine = Q(instance_id=run.id, taken_turn__isnull=False)
        found = self.rows(Message).filter(mine | Q(chain_id=run.chain_id, taken_turn__isnull=True)).order_by("id")
        answered = ExpressionWrapper(Q(answer__isnull=False), output_field=BooleanField())
        found = found.exclude(kind=journal.REJECTED).annotate(answered=answered)
        return [rows.message(values) for values in found.values_list(*rows.MESSAGE_FIELDS)]

    def _markers(self, instance_id: UUID) -> Mapping[str, str]:
        return dict(self.rows(Marker).filter(instance_id=instance_id).order_by("id").values_list("key", "value"))

    @retried
    def has_news(self, instance_id: UUID, join: str = "") -> bool:
        """Is there an outcome, a due timer or a message not taken in, and no running member of ``join``? One statement.

        A message counts only without ``join``'s members running, too: its sender asks without ``join``.
        """
        now = self.now_in_statement()
        due = Q(kind__in=journal.WAITS, state=t.SCHEDULED, mapped=False, due_at__lte=now)
        steps = self.rows(StepResult).filter(instance_id=OuterRef("pk"))
        ended = steps.filter(OUTCOME).exclude(kind__in=NO_STEP)
        members = self.rows(StepResult).filter(instance_id=OuterRef("instance_id"), group=OuterRef("position"))
        open_maps = steps.filter(
            kind=journal.MAP, state=t.SCHEDULED, mapped=False, abandoned=False, taken_turn__isnull=True
        )
        drained = open_maps.filter(~Exists(members.filter(state__in=RUNNING_MEMBERS)))
        messages = self.rows(Message).filter(chain_id=OuterRef("chain_id"), taken_turn__isnull=True)
        found = self.rows(WorkflowInstance).filter(
            Exists(ended) | Exists(steps.filter(due, taken_turn__isnull=True)) | Exists(messages) | Exists(drained),
            pk=instance_id,
            state__in=t.OPEN_STATES,
        )
        if join:
            running = steps.filter(join=join, state__in=RUNNING_MEMBERS, abandoned=False).exclude(due)
            found = found.filter(~Exists(running))
        return bool(found.exists())

    @retried
    def history(
        self, instance_id: UUID, *, of: str = "", start: int = 0, limit: int | None = None
    ) -> Sequence[Mapping[str, Any]]:
        """Rows of ``handle.history()``: by position, compensations last, newest position first.

        ``of``: instead, the members of the map at this position, from ``start`` on, at most ``limit``.
        """
        found = self.rows(StepResult).filter(Q(mapped=True) if of else IN_JOURNAL, instance_id=instance_id)
        if of:
            found = found.filter(group=of).order_by("id")[start : None if limit is None else start + limit]
        entries = [dict(zip(HISTORY, values, strict=True)) for values in found.values_list(*HISTORY.values())]
        return sorted(entries, key=lambda each: identity.sort_key(each["position"]))

    @retried
    def open_steps(self, instance_id: UUID, *, members: bool = False) -> Sequence[OpenStep]:
        """Rows that are not final and not abandoned, by id; with the ``members`` of maps, or without."""
        found = self.rows(StepResult).filter(instance_id=instance_id, state__in=t.STEP_OPEN).order_by("id")
        found = found if members else found.filter(IN_JOURNAL)
        return self.with_progress([rows.open_step(values) for values in found.values_list(*rows.STEP_FIELDS)])


def _first(found: QuerySet[Any]) -> InstanceRow | None:
    values = found.values(*rows.INSTANCE_FIELDS).first()
    return rows.instance_row(values) if values is not None else None
