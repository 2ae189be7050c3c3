"""One attempt: claimed by one guarded UPDATE, ended by another. Each stands on the token, the fence of the attempt."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db.models import Case, CharField, Exists, F, OuterRef, Q, QuerySet, Value, When
from django.db.models.functions import Coalesce

from django_app.models import StepAttempt, StepResult, WorkerLease, WorkflowInstance
from django_app.models.moments import MomentField
from django_app.store import rows
from django_app.store.clock import Clock
from django_app.store.connected import chunks
from django_app.store.groups import Groups
from django_app.store.retries import retried
from durable_celery import faults
from durable_celery.core import transitions as t
from durable_celery.ports import AttemptRecord, Changed, Claimed, Dispatch, Heartbeat, OpenStep, StepChange

WORKING = tuple(state for state in t.OPEN_STATES if state != t.BLOCKED)


class Attempts(Groups, Clock):
    """Claiming, ending and watching attempts."""

    def claim(
        self,
        step_id: int,
        *,
        token: str,
        lease_id: UUID | None,
        pid: int,
        now: datetime,
        close_at: datetime | None,
        look_at: datetime | None,
    ) -> Claimed | None:
        """Claim a step that may run now, by one UPDATE; None, and no attempt counted, if there is nothing to claim."""
        values = {
            "state": t.RUNNING, "attempt": F("attempt") + 1, "started_at": now, "token": token, "lease_id": lease_id,
            "pid": pid, "close_at": close_at, "look_at": look_at, "heartbeat_at": None, "finished_at": None,
        }  # fmt: skip
        if not self._take_claim(step_id, lease_id, now, values):
            return None
        faults.reach("claim.after_commit")
        return self.claim_of(step_id, token)

    @retried
    def _take_claim(self, step_id: int, lease_id: UUID | None, now: datetime, values: Mapping[str, Any]) -> bool:
        faults.reach("claim.in_statement")
        return bool(self._claimable(step_id, lease_id, now).update(**values))

    # Repeated apart from the UPDATE: that has its effect once, and would find nothing to claim the second time.
    @retried
    def claim_of(self, step_id: int, token: str) -> Claimed | None:
        """What was claimed under this token; None if nothing was, or another attempt has it by now."""
        fields = (*rows.STEP_FIELDS, "args", "last_heartbeat", "instance__name", "instance__context")
        values = self.rows(StepResult).filter(pk=step_id, token=token).values_list(*fields).first()
        if values is None:
            return None
        *step, args, last_heartbeat, workflow, context = values
        return Claimed(
            step=rows.open_step(tuple(step)),
            args=args,
            last_heartbeat=last_heartbeat,
            workflow=workflow,
            context=context,
        )

    def _claimable(self, step_id: int, lease_id: UUID | None, now: datetime) -> QuerySet[Any]:
        # A cancel stops what was scheduled before it; cleanup and compensations are rows that it does not hit.
        instance = self.rows(WorkflowInstance).filter(
            pk=OuterRef("instance_id"), state__in=WORKING, paused_at__isnull=True
        )
        found: QuerySet[Any] = self.rows(StepResult).filter(
            Q(state=t.SCHEDULED) | Q(state=t.RETRYING, due_at__lte=now),
            Exists(instance.filter(cancel_requested_at__isnull=True)) | (Q(shielded=True) & Exists(instance)),
            pk=step_id, kind__in=rows.DISPATCHED,
        )  # fmt: skip
        if lease_id is not None:
            found = found.filter(Exists(self.rows(WorkerLease).filter(pk=lease_id, dead_at__isnull=True)))
        return found

    @retried
    def arm(self, step_id: int, token: str, *, close_at: datetime | None, look_at: datetime | None) -> bool:
        """Set the deadlines of a running attempt anew, if ``token`` is still current."""
        running = self.rows(StepResult).filter(pk=step_id, token=token, state__in=(t.RUNNING, t.ABANDONED))
        return bool(running.update(close_at=close_at, look_at=look_at))

    @retried
    def change_step(self, step: OpenStep, change: StepChange, *, record: AttemptRecord | None = None) -> Changed:
        """Write ``change`` where the row is still as in ``step``; let the next held member go if it ended.

        A row abandoned meanwhile keeps its token: its end is stored, and where another attempt was to follow it is
        CANCELLED. No sweep looks at it again.
        """
        with self.atomic():
            if not self._same(step).update(**_values(step, change)):
                return Changed(ok=False)
            if record is not None:
                self._record(step.id, record)
            if change.state == t.RETRYING and self._stop(step):
                return Changed(ok=True, stopped=True)
            ended = change.state in t.STEP_FINAL and change.finished_at is not None
            promoted = self.promote(step, change.finished_at) if ended and change.finished_at else ()
            faults.reach("step.in_transaction")
        return Changed(ok=True, promoted=promoted)

    def _stop(self, step: OpenStep) -> bool:
        """A run that is being cancelled makes no further attempt of what it had scheduled before."""
        cancelled = self.rows(WorkflowInstance).filter(pk=step.instance_id, cancel_requested_at__isnull=False)
        retried_ = self.rows(StepResult).filter(Exists(cancelled), pk=step.id, state=t.RETRYING, shielded=False)
        now = self.now()
        return bool(retried_.update(state=t.FAILED, finished_at=now, look_at=now, due_at=None))

    def _same(self, step: OpenStep) -> QuerySet[Any]:
        states = [step.state]
        if step.state in (t.RUNNING, t.EXTERNAL):
            states.append(t.ABANDONED)
        fence = Q(token__isnull=True) if step.token is None else Q(token=step.token)
        found: QuerySet[Any] = self.rows(StepResult).filter(fence, pk=step.id, state__in=states, attempt=step.attempt)
        return found

    @retried
    def keep_superseded(self, step_id: int, record: AttemptRecord) -> None:
        """Keep a late result for people; changes nothing else."""
        self._record(step_id, record)

    def _record(self, step_id: int, record: AttemptRecord) -> None:
        self.rows(StepAttempt).create(
            step_id=step_id, attempt=record.attempt, outcome=record.outcome, failure=record.failure,
            result=record.result, started_at=record.started_at, finished_at=record.finished_at, node=record.node,
        )  # fmt: skip

    @retried
    def heartbeat(
        self,
        step_id: int,
        token: str,
        details: str | None,
        now: datetime,
        look_at: datetime | None,
        *,
        apart: bool = False,
    ) -> Heartbeat:
        """Note a sign of life of the current attempt. ``details`` and ``look_at`` None leave what is there."""
        values: dict[str, Any] = {"heartbeat_at": now}
        if details is not None:
            values["last_heartbeat"] = details
        if look_at is not None:
            values["look_at"] = look_at
        current = self.rows(StepResult).filter(pk=step_id, token=token, state__in=t.CLAIMED)
        return Attempts.asked(self, step_id, token) if current.update(**values) else Heartbeat(current=False)

    def asked(self, step_id: int, token: str, *, apart: bool = False) -> Heartbeat:
        """What a heartbeat would learn, without one."""
        current = self.rows(StepResult).filter(pk=step_id, token=token, state__in=t.CLAIMED)
        found = current.values_list("abandoned", "shielded", "instance__cancel_requested_at").first()
        if found is None:
            return Heartbeat(current=False)
        abandoned, shielded, cancelled_at = found
        asked = abandoned or (cancelled_at is not None and not shielded)
        return Heartbeat(current=True, cancel_requested=asked)

    @retried
    def note_step_unknown(self, step_id: int, waiting_for: str, look_at: datetime) -> None:
        """Leave a claimable row for a worker that knows its step: say so on its instance, look again at ``look_at``."""
        row = self.rows(StepResult).filter(pk=step_id, state__in=t.CLAIMABLE)
        if row.update(look_at=look_at):
            instance = row.values_list("instance_id", flat=True)[:1]
            open_ones = self.rows(WorkflowInstance).filter(state__in=t.OPEN_STATES)
            open_ones.filter(pk__in=list(instance)).update(waiting_for=waiting_for)

    @retried
    def dispatches(self, step_ids: Iterable[int]) -> Sequence[Dispatch]:
        """What is needed to publish these rows, those that may be claimed, by id."""
        found: list[Dispatch] = []
        for some in chunks(step_ids):
            claimable = self.rows(StepResult).filter(pk__in=some, state__in=t.CLAIMABLE, kind__in=rows.DISPATCHED)
            found += [rows.dispatch(*values) for values in claimable.order_by("id").values_list(*rows.DISPATCH_FIELDS)]
        return found


def _values(step: OpenStep, change: StepChange) -> dict[str, Any]:
    """Every field of ``change``; of an abandoned row, what keeps it out of everyone's way."""
    values: dict[str, Any] = {
        name: getattr(change, name)
        for name in (
            "attempt", "failures", "deaths", "expiries", "token", "lease_id", "pid", "result", "failure", "due_at",
            "start_by_at", "close_at", "finished_at", "look_at", "unknown_end", "resends", "state",
        )
    }  # fmt: skip
    values |= {name: value for name in ("args", "queue") if (value := getattr(change, name)) is not None}
    if step.state not in t.CLAIMED or change.state in t.CLAIMED:
        return values
    abandoned = {"abandoned": True}
    if change.look_at is not None:  # PostgreSQL takes a CASE of nothing but NULLs for a text
        look_at = Value(change.look_at, output_field=MomentField())
        values["look_at"] = Case(When(**abandoned, then=Value(None)), default=look_at, output_field=MomentField())
    if change.state not in t.STEP_FINAL:
        now = Coalesce(Value(change.due_at, output_field=MomentField()), F("started_at"))
        values["finished_at"] = Case(When(**abandoned, then=now), default=Value(None), output_field=MomentField())
        values["state"] = Case(
            When(**abandoned, then=Value(t.CANCELLED)), default=Value(change.state), output_field=CharField()
        )
    return values
