"""Reading instances: for a turn, a handle, a page. The number of queries never grows with history."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from django.db.models import Case, Exists, F, OuterRef, Q, QuerySet, TextField, Value, When

from django_app.models import Marker, Message, StepResult, WorkflowInstance
from django_app.models.querysets import NO_STEP, OUTCOME
from django_app.store import rows
from django_app.store.clock import Clock
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


class Reading(Clock):
    """Everything that only reads an instance."""

    @retried
    def find(self, instance_id: UUID) -> InstanceRow | None:
        """The newest run of the chain with this id; of a later run's id, that of its chain."""
        everyone = self.rows(WorkflowInstance)
        found = self._newest(everyone.filter(chain_id=instance_id))
        if found is None:
            chain = everyone.filter(pk=instance_id).values("chain_id")
            found = self._newest(everyone.filter(chain_id__in=list(chain.values_list("chain_id", flat=True))))
        return found

    @retried
    def find_by_key(self, name: str, key: str) -> InstanceRow | None:
        """The open instance with this key, else the newest closed one."""
        found = self.rows(WorkflowInstance).filter(key_hash=identity.key_hash(name, key))
        return self._newest(found.order_by(F("open_key").desc(nulls_last=True)))

    def _newest(self, found: QuerySet[Any]) -> InstanceRow | None:
        ordered = found.order_by(*found.query.order_by, "-created_at", "-id")
        values = ordered.values(*rows.INSTANCE_FIELDS).first()
        return rows.instance_row(values) if values is not None else None

    @retried
    def load(self, instance_id: UUID, *, args: bool = False) -> Loaded | None:
        """The instance and its journal, entries and messages by id; two queries, and one each for messages and markers.

        ``args``: with the encoded arguments of each entry, which replay does not need.
        """
        found = self.rows(WorkflowInstance).filter(pk=instance_id).annotate(
            has_messages=Exists(self.rows(Message).filter(instance_id=OuterRef("pk"))),
            has_markers=Exists(self.rows(Marker).filter(instance_id=OuterRef("pk"))),
        )  # fmt: skip
        values = found.values(*rows.INSTANCE_FIELDS, "has_messages", "has_markers").first()
        if values is None:
            return None
        has_messages, has_markers = values.pop("has_messages"), values.pop("has_markers")
        stored = journal.Journal(
            instance_id=str(instance_id),
            entries=self._entries(instance_id, (*rows.ENTRY_FIELDS, "args") if args else rows.ENTRY_FIELDS),
            messages=self._messages(instance_id) if has_messages else (),
            markers=self._markers(instance_id) if has_markers else {},
        )
        return Loaded(instance=rows.instance_row(values), journal=stored)

    def _entries(self, instance_id: UUID, names: tuple[str, ...]) -> Sequence[journal.Entry]:
        # Of a gather its rules as recorded; of a step, its terms are nothing to replay.
        rules = Case(When(kind=journal.GATHER, then=F("options")), default=Value(""), output_field=TextField())
        found = self.rows(StepResult).filter(instance_id=instance_id).order_by("id").annotate(rules=rules)
        return [rows.entry((*names, "options"), values) for values in found.values_list(*names, "rules")]

    def _messages(self, instance_id: UUID) -> Sequence[journal.Message]:
        found = self.rows(Message).filter(instance_id=instance_id).order_by("id")
        return [rows.message(values) for values in found.values_list(*rows.MESSAGE_FIELDS)]

    def _markers(self, instance_id: UUID) -> Mapping[str, str]:
        return dict(self.rows(Marker).filter(instance_id=instance_id).order_by("id").values_list("key", "value"))

    @retried
    def has_news(self, instance_id: UUID, join: str = "") -> bool:
        """Is there an outcome, a due timer or a message not taken in, and no running member of ``join``? One statement.

        A message counts only without ``join``'s members running, too: its sender asks without ``join``.
        """
        now = self.now_in_statement()
        due = Q(kind__in=(journal.TIMER, journal.SIGNAL), state=t.SCHEDULED, due_at__lte=now)
        steps = self.rows(StepResult).filter(instance_id=OuterRef("pk"))
        ended = steps.filter(OUTCOME).exclude(kind__in=NO_STEP)
        messages = self.rows(Message).filter(instance_id=OuterRef("pk"), taken_turn__isnull=True)
        found = self.rows(WorkflowInstance).filter(
            Exists(ended) | Exists(steps.filter(due, taken_turn__isnull=True)) | Exists(messages),
            pk=instance_id,
            state__in=t.OPEN_STATES,
        )
        if join:
            running = steps.filter(join=join, state__in=RUNNING_MEMBERS, abandoned=False).exclude(due)
            found = found.filter(~Exists(running))
        return bool(found.exists())

    @retried
    def history(self, instance_id: UUID) -> Sequence[Mapping[str, Any]]:
        """Rows of ``handle.history()``: by position, compensations last, newest position first."""
        found = self.rows(StepResult).filter(instance_id=instance_id).values_list(*HISTORY.values())
        entries = [dict(zip(HISTORY, values, strict=True)) for values in found]
        return sorted(entries, key=lambda each: identity.sort_key(each["position"]))

    @retried
    def open_steps(self, instance_id: UUID) -> Sequence[OpenStep]:
        """Rows that are not final and not abandoned, by id."""
        found = self.rows(StepResult).filter(instance_id=instance_id, state__in=t.STEP_OPEN).order_by("id")
        return [rows.open_step(values) for values in found.values_list(*rows.STEP_FIELDS)]
