"""Repairing a run: a result in a step's place, a failed step afresh, a new run from what another had recorded.

Each is one transaction; a turn that was under way loses its compare-and-swap, since ``revision`` moves.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.db.models import F, Q, Value
from django.db.models.functions import Concat, Substr

from django_app.models import Marker, Message, StepResult, WorkflowInstance
from django_app.store import copies
from django_app.store.connected import CHUNK, by_size
from django_app.store.retries import retried
from django_app.store.steering import Steering
from django_app.store.turns import marker_hash
from durable_celery import faults
from durable_celery.core import forking, journal
from durable_celery.core import transitions as t
from durable_celery.core.forking import Fork
from durable_celery.core.skipping import Replacement
from durable_celery.engine.verdicts import end_of_poll
from durable_celery.errors import NotRetryable
from durable_celery.ports import InstanceRow, NewInstance, NewMessage, Wake

GRACE = timedelta(seconds=2)  # how long news may lie before the sweep asks for a turn
AFRESH: Mapping[str, Any] = {
    "state": t.SCHEDULED, "failures": 0, "deaths": 0, "expiries": 0, "resends": 0, "failure": None, "result": None,
    "token": None, "due_at": None, "finished_at": None, "abandoned": False, "ended_turn": None, "taken_turn": None,
    "taken_at": None, "start_by_at": None, "end_by_at": None,
}  # fmt: skip


class Repair(Steering):
    """The acts of ``durable_celery.repair``, in the caller's transaction if there is one."""

    # -- skip ------------------------------------------------------------------------------------------------------

    @retried
    def reopen_step(
        self, instance_id: UUID, position: str, result: str | None, now: datetime, wakes: list[Wake]
    ) -> None:
        """Reopen a FAILED run whose last failure is the step at ``position``; a ``result`` takes its place."""
        run = self.newest_run(instance_id)
        last = self.rows(StepResult).filter(
            instance_id=run.id,
            position=position,
            kind__in=journal.STEPS,
            state=t.FAILED,
            taken_turn=F("instance__turn"),
        )
        is_last = last.exists()
        with self.atomic():
            self.reopen(instance_id, now, wakes)
            if not is_last:
                raise NotRetryable(
                    f"position {position} of instance {run.chain_id} is not the last failure, the body went on after "
                    f"it; retry() takes back the last one, fork({position!r}) goes on from here in a new instance",
                    instance_id=str(run.chain_id),
                )
            if result is not None:
                row = self.rows(StepResult).filter(instance_id=run.id, position=position, state=t.SCHEDULED)
                row.update(state=t.SUCCEEDED, result=result, finished_at=now, look_at=now + GRACE)

    @retried
    def replace_row(
        self, run: InstanceRow, place: Replacement, result: str, message: NewMessage | None, now: datetime
    ) -> bool:
        """Put a row with its result at a position of a BLOCKED run, what is recorded there aside; False if it moved.

        With ``message`` the row is a wait that this message ends.
        """
        with self.atomic():
            mine = self.rows(WorkflowInstance).filter(pk=run.id, state=t.BLOCKED, revision=run.revision)
            if not mine.update(blocked_by="", revision=F("revision") + 1, history_length=F("history_length") + 1):
                return False
            if place.aside:
                self._set_aside(run, place, now)
            if place.makes_room:
                self._make_room(run, place)
            self.rows(StepResult).bulk_create([_replaced(run, place, result, now)])
            if message is not None:
                self.store_messages([(run.chain_id, message, now)])
            faults.reach("steer.in_transaction")
            return True

    def _set_aside(self, run: InstanceRow, place: Replacement, now: datetime) -> None:
        """The row and all below it go to a position of their own; what runs there is wanted no longer."""
        below = Q(position=place.position) | Q(position__startswith=f"{place.position}.")
        rows = self.rows(StepResult).filter(below, instance_id=run.id)
        ids = list(rows.values_list("pk", flat=True))
        self.abandon_steps(Q(pk__in=ids), now, run.turn)
        self.rows(StepResult).filter(pk__in=ids).update(
            position=Concat(Value(place.aside), Substr("position", len(place.position) + 1)),
            abandoned=True, taken_turn=None, taken_at=None, group=None, join=None, look_at=None,
        )  # fmt: skip

    def _make_room(self, run: InstanceRow, place: Replacement) -> None:
        later: dict[str, Any] = {
            "instance_id": run.id, "taken_turn": place.taken_turn, "taken_order__gte": place.taken_order
        }  # fmt: skip
        for model in (StepResult, Message):
            self.rows(model).filter(**later).update(taken_order=F("taken_order") + 1)

    # -- one step --------------------------------------------------------------------------------------------------

    @retried
    def restart_step(self, run: InstanceRow, position: str, now: datetime) -> None:
        """Let a FAILED step of an open run start afresh that the body has not seen fail; ``NotRetryable`` says why not.

        A BLOCKED run is tried again.
        """
        with self.atomic():
            mine = self.rows(WorkflowInstance).filter(pk=run.id, revision=run.revision, cancel_requested_at=None)
            if not mine.update(revision=F("revision") + 1, blocked_by=""):
                raise _stays(run, position, "the instance is being cancelled, or has changed; look again")
            step = self.rows(StepResult).filter(instance_id=run.id, position=position, state=t.FAILED)
            values = step.values("kind", "taken_turn", "group", "abandoned", "mapped", "options").first()
            if values is None or values["kind"] not in journal.STEPS or values["abandoned"]:
                raise _stays(run, position, "nobody waits for it any more")
            seen = values["taken_turn"] is not None or values["mapped"]
            if seen and not self._unseen(run, position, values["group"]):
                raise _stays(
                    run, position,
                    f"the body has seen it fail and gone on; fork({position!r}) goes on from there in a new instance",
                )  # fmt: skip
            ends = end_of_poll(values["options"], now) if values["kind"] == journal.POLL else None
            step.update(**{**AFRESH, "end_by_at": ends}, scheduled_at=now, look_at=now)
            faults.reach("steer.in_transaction")

    def _unseen(self, run: InstanceRow, position: str, group: str | None) -> bool:
        """Whether everything that it is a member of is open, and goes on as if it had not failed."""
        outer = [position[:end] for end, character in enumerate(position) if character == "."]
        rows = self.rows(StepResult).filter(instance_id=run.id)
        if not outer or rows.filter(position__in=outer, state__in=t.STEP_FINAL).exists():
            return False
        return not rows.filter(group=group, abandoned=True).exists()

    # -- fork ------------------------------------------------------------------------------------------------------

    @retried
    def fork(self, source: UUID, new: NewInstance, plan: Fork, now: datetime, wakes: list[Wake]) -> None:
        """Insert a run with what ``plan`` takes from the journal of another; children it waits for are its own."""
        with self.atomic():
            self.create([new])
            self._copy_messages(source, new.id, plan, now)
            length = 0
            for some in by_size(self._copied_rows(source, new.id, plan, now)):
                self.rows(StepResult).bulk_create(some)
                length += sum(not row.mapped for row in some)
            origin = self.rows(WorkflowInstance).filter(pk=source)
            subject = origin.values("subject_type", "subject_id", "subject_hash", "started_at").get()
            started_at = subject.pop("started_at")
            self.rows(WorkflowInstance).filter(pk=new.id).update(
                turn=plan.turn, turn_at=plan.turn_at, started_at=started_at if plan.turn else None,
                state=t.RUNNING if plan.turn else t.PENDING, history_length=length, look_at=now + GRACE,
                status_text=plan.status_text or "", cancel_requested_at=now if plan.cancelled else None, **subject,
            )  # fmt: skip
            faults.reach("steer.in_transaction")
            copied = self.rows(StepResult).filter(instance_id=new.id, kind=journal.CHILD, state=t.SCHEDULED)
            self.start_again(new.id, list(copied.order_by("pk")), now, wakes)

    def _copied_rows(self, source: UUID, target: UUID, plan: Fork, now: datetime) -> Iterator[StepResult]:
        long = self.rows(StepResult).filter(instance_id=source, kind=journal.MAP, result__isnull=True)
        apart = set(long.values_list("position", flat=True))
        for row in self._pages(StepResult, Q(instance_id=source)):
            # The members of a map that has ended are summed up on its row, unless that would have been too long.
            mode = plan.rows.get(row.position.rpartition(".")[0] if row.mapped else row.position)
            if mode is not None and not (row.mapped and mode != forking.OPEN and row.group not in apart):
                yield copies.step(row, target, mode, now)

    def _copy_messages(self, source: UUID, target: UUID, plan: Fork, now: datetime) -> None:
        wanted = plan.messages | {plan.news}
        taken = self._pages(Message, Q(instance_id=source, taken_turn__isnull=False))
        found = [row for row in taken if row.pk in wanted]
        ids = [row.pk for row in found]
        self.rows(Message).bulk_create([copies.message(row, target, plan, now) for row in found])
        made = self.rows(Message).filter(instance_id=target).order_by("id").values_list("pk", flat=True)
        names = dict(zip(ids, made, strict=True))
        markers = {forking.renamed(key, names): value for key, value in plan.markers.items()}
        self.rows(Marker).bulk_create(
            Marker(instance_id=target, key=key, key_hash=marker_hash(key), value=value)
            for key, value in markers.items()
        )

    def _pages(self, model: type[Any], wanted: Q) -> Iterable[Any]:
        """Rows by id, a page at a time."""
        last = 0
        while page := list(self.rows(model).filter(wanted, pk__gt=last).order_by("pk")[:CHUNK]):
            last = page[-1].pk
            yield from page


def _replaced(run: InstanceRow, place: Replacement, result: str, now: datetime) -> StepResult:
    waits = place.taken_turn is None and place.kind in (journal.TIMER, journal.SIGNAL)
    due_at = now if waits and place.kind == journal.TIMER else None
    return StepResult(
        instance_id=run.id, position=place.position, kind=place.kind, name=place.name,
        state=t.SCHEDULED if waits else t.SUCCEEDED, result=None if waits else result, due_at=due_at,
        finished_at=None if waits else now, scheduled_at=now, taken_turn=place.taken_turn,
        taken_order=place.taken_order, taken_at=place.taken_at,
        look_at=now + GRACE if place.taken_turn is None else None,
    )  # fmt: skip


def _stays(run: InstanceRow, position: str, why: str) -> NotRetryable:
    return NotRetryable(f"position {position} of instance {run.chain_id}: {why}", instance_id=str(run.chain_id))
