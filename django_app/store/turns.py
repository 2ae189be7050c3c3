"""One turn: everything it changes, in one transaction that begins with a compare-and-swap."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db.models import Case, F, Q, TextField, Value, When
from django.db.models.functions import Coalesce, Concat, Least

from django_app.models import Marker, Message, StepResult, WorkflowInstance
from django_app.models.moments import MomentField
from django_app.store import rows
from django_app.store.children import GRACE, Births, wakes_of
from django_app.store.connected import by_id, by_size, chunks
from django_app.store.maps import Maps
from django_app.store.retries import Busy, retried
from django_app.store.starting import Starting
from django_app.store.succession import Succession
from django_app.store.updates import Updates
from durable_celery import faults
from durable_celery.core import journal
from durable_celery.core import transitions as t
from durable_celery.ports import Committed, Dispatch, NewEntry, TurnCommit, Wake

LEFT = tuple(state for state in t.OPEN_STATES if state != t.BLOCKED)


class Lost(Exception):  # noqa: N818 - rolls the transaction back
    """Somebody else was first."""


class Turns(Updates, Succession, Starting, Maps):
    """Committing turns."""

    @retried
    def commit_turn(self, commit: TurnCommit) -> Committed | None:
        """Apply a turn; None if the revision moved, or, when closing, a message came or a sender is at the mailbox.

        A run that goes on as ``commit.successor`` closes nothing; ``KeyConflict`` if its key is taken where it goes.
        None means that nothing was changed. A BLOCKED commit changes the state, its reason and the revision, no more.
        """
        wakes: list[Wake] = []
        try:
            with self.atomic():
                created = self._block(commit) if commit.state == t.BLOCKED else self._apply(commit, wakes)
                faults.reach("turn.in_transaction")
        except (Lost, Busy):
            return None
        return Committed(dispatches=created, wakes=wakes)

    def _apply(self, commit: TurnCommit, wakes: list[Wake]) -> Sequence[Dispatch]:
        faults.reach("turn.begins")
        final = commit.state in t.FINAL_STATES
        successor = commit.successor
        if successor is not None:
            self.move_key(commit, successor)
        elif final:
            self.release_key(commit.chain_id or commit.instance_id, commit.state)
        births = self.judge_children(commit) if commit.children else Births()
        self._swap(commit, _values(commit, final=final))
        faults.reach("turn.swapped")
        self._relate(commit, births, wakes)
        faults.reach("turn.related")
        settled = {each.entry_id for each in commit.settled}
        self._take(StepResult, {k: v for k, v in commit.taken_entries.items() if k not in settled}, commit)
        self._take_messages(commit)
        self.keep_answers(commit.answers)
        self.keep_rejections(commit.rejected, commit.now)
        self._settle(commit)
        self._run_again(commit)
        if commit.withdrawn:
            for some in chunks(commit.withdrawn):
                self.abandon_steps(Q(pk__in=some), commit.now, commit.turn)
            if commit.state in (t.FAILED, t.CANCELLED, t.CONTINUED) and self._owing(commit.instance_id):
                raise Lost  # claimed since the turn was loaded: its compensation must not be forgotten
        self.give_up_members(commit)
        created = self._insert_rows(commit, births)
        self.insert_members(commit)
        if successor is not None:
            self.leave_unread(commit, successor)
            self.insert_successor(commit, successor)
            self.unlook_steps(commit.instance_id)
        elif commit.closes or final:
            self._close(commit, final=final)
        if final and commit.state != t.CONTINUED and commit.parent is not None:
            self.settle_parent(
                commit.parent, commit.state, commit.now, wakes, result=commit.result, failure=commit.failure
            )
        return created

    def _relate(self, commit: TurnCommit, births: Births, wakes: list[Wake]) -> None:
        """Instances come before step rows: whose child closes now holds its own, and will want a row of this run."""
        if births.start:
            self.create(births.start)
            wakes += wakes_of(births.start)
            faults.reach("turn.children_in_transaction")
        if commit.told:
            self.tell_children(commit.instance_id, commit.told, commit.now, wakes)
        if commit.closes and commit.has_children and commit.state != t.CONTINUED:
            self.end_children(commit.instance_id, commit.closing_as or commit.state, commit.now, wakes)

    def _owing(self, instance_id: UUID) -> bool:
        owing = self.rows(StepResult).filter(instance_id=instance_id, state=t.ABANDONED).exclude(compensation="")
        return bool(owing.exists())

    def _block(self, commit: TurnCommit) -> Sequence[Dispatch]:
        values: dict[str, Any] = {
            "state": t.BLOCKED, "failure": commit.failure, "waiting_for": commit.waiting_for, "look_at": commit.look_at,
            "waiting_since": commit.now, "left_at": None, "turn_deaths": 0, "turn_begun_at": None,
            "blocked_by": Concat(F("blocked_by"), Value(f"{commit.fingerprint} ")),
        }  # fmt: skip
        self._swap(commit, values)
        return ()

    def _swap(self, commit: TurnCommit, values: Mapping[str, Any]) -> None:
        """The compare-and-swap every turn stands on; it locks the instance until the end."""
        sources = [state for state in t.sources(t.INSTANCE, commit.state) if state in t.OPEN_STATES]
        mine = self.rows(WorkflowInstance).filter(pk=commit.instance_id, revision=commit.revision, state__in=sources)
        if not mine.update(revision=F("revision") + 1, **values):
            raise Lost

    def _take(self, model: type[StepResult], taken: Mapping[int, int], commit: TurnCommit) -> None:
        for pks in chunks(taken):
            self.rows(model).filter(pk__in=pks).update(**_taking({pk: taken[pk] for pk in pks}, commit))

    def _take_messages(self, commit: TurnCommit) -> None:
        """Take in what came, for this run from now on, and note which messages were given to whom asked for them."""
        values: dict[str, Any] = {"instance_id": commit.instance_id}
        delivered = set(commit.delivered_messages)
        if delivered.issuperset(commit.taken_messages):
            values["delivered_turn"] = commit.turn
            delivered -= commit.taken_messages.keys()
        for pks in chunks(commit.taken_messages):
            taking = _taking({pk: commit.taken_messages[pk] for pk in pks}, commit)
            self.rows(Message).filter(pk__in=pks).update(**values, **taking)
        for turn, changed in ((commit.turn, sorted(delivered)), (None, commit.returned_messages)):
            for pks in chunks(changed):
                self.rows(Message).filter(pk__in=pks).update(delivered_turn=turn)

    def _settle(self, commit: TurnCommit) -> None:
        """End timers, signal waits and gathers, those that end alike in one statement."""
        alike: dict[tuple[Any, ...], list[int]] = {}
        for each in commit.settled:
            key = (each.state, each.result, each.failure, each.finished_at, each.entry_id in commit.taken_entries)
            alike.setdefault(key, []).append(each.entry_id)
        for (state, result, failure, finished_at, taken), group in alike.items():
            for pks in chunks(group):
                values = _taking({pk: commit.taken_entries[pk] for pk in pks}, commit) if taken else {"look_at": None}
                self.rows(StepResult).filter(pk__in=pks).update(
                    state=state,
                    result=result,
                    failure=failure,
                    finished_at=finished_at,
                    ended_turn=commit.turn,
                    **values,
                )

    def _run_again(self, commit: TurnCommit) -> None:
        """Whoever gave a poll up since the turn was loaded has moved the revision; a row that is not as it was is a bug
        or a hand in the table, and then nothing of this turn counts."""
        for each in commit.again:
            ended = self.rows(StepResult).filter(
                pk=each.entry_id, kind=journal.POLL, state=t.SUCCEEDED, taken_turn__isnull=True, abandoned=False
            )
            due_at = Value(each.due_at, output_field=MomentField())
            look_at = Least(due_at, Coalesce(F("end_by_at"), due_at))
            if not ended.update(
                state=t.RETRYING, due_at=each.due_at, start_by_at=each.start_by_at, look_at=look_at, finished_at=None,
                failures=0, deaths=0, expiries=0, resends=0, unknown_end=False, failure=None,
            ):  # fmt: skip
                raise Lost

    def _insert_rows(self, commit: TurnCommit, births: Births) -> Sequence[Dispatch]:
        created = [_step(commit, _born(commit, new, births)) for new in commit.entries]
        for some in by_size(created):
            self.rows(StepResult).bulk_create(some)
        if created and created[0].pk is None:
            self._read_back(commit.instance_id, created)
        markers = [
            Marker(instance_id=commit.instance_id, key_hash=marker_hash(key), key=key, value=value)
            for key, value in commit.markers.items()
        ]
        if markers:
            self.rows(Marker).bulk_create(markers)
        return [rows.dispatch_of(row) for row in created if row.state == t.SCHEDULED and row.kind in rows.DISPATCHED]

    def _read_back(self, instance_id: UUID, created: Sequence[StepResult]) -> None:
        """MySQL does not return the keys of a bulk insert."""
        by_position = {row.position: row for row in created}
        for some in chunks(by_position):
            found = self.rows(StepResult).filter(instance_id=instance_id, position__in=some)
            for pk, position in found.values_list("pk", "position"):
                by_position[position].pk = pk

    def _close(self, commit: TurnCommit, *, final: bool) -> None:
        """Senders are kept out while it is looked whether one came after the turn was loaded."""
        chain_id = commit.chain_id or commit.instance_id
        self.hold_mailbox(chain_id)
        if self.unseen_messages(chain_id, commit.last_message, commit.left_messages):
            raise Lost
        # Whoever sends to a run that only compensates is told that it has ended.
        self.shut_mailbox(chain_id, commit.now)
        if final:
            self.unlook_steps(commit.instance_id)

    # -- outside of turns ------------------------------------------------------------------------------------------

    @retried
    def note_waiting(self, instance_id: UUID, waiting_for: str) -> None:
        """Write ``waiting_for`` of an open instance and nothing else."""
        self.rows(WorkflowInstance).filter(pk=instance_id, state__in=t.OPEN_STATES).update(waiting_for=waiting_for)

    @retried
    def leave(
        self, instance_id: UUID, revision: int, fingerprint: str, waiting_for: str, now: datetime, look_at: datetime
    ) -> bool:
        """Leave the run to workers of other code: say so, note once that this fingerprint has tried, look again then.

        False if the run has moved on. Its state and revision stay.
        """
        mine = self.rows(WorkflowInstance).filter(pk=instance_id, revision=revision, state__in=LEFT)
        tried = Case(
            When(blocked_by__contains=f"{fingerprint} ", then=F("blocked_by")),
            default=Concat(F("blocked_by"), Value(f"{fingerprint} ")),
            output_field=TextField(),
        )
        noted: dict[str, Any] = {"blocked_by": tried} if fingerprint else {}
        left_at = Coalesce(F("left_at"), Value(now, output_field=MomentField()))
        return bool(mine.update(waiting_for=waiting_for, look_at=look_at, left_at=left_at, **noted))

    @retried
    def postpone_instance(self, instance_id: UUID, look_at: datetime | None) -> None:
        """Set when the sweep looks at this open instance again."""
        self.rows(WorkflowInstance).filter(pk=instance_id, state__in=t.OPEN_STATES).update(look_at=look_at)


def _values(commit: TurnCommit, *, final: bool) -> dict[str, Any]:
    """The new values of the instance."""
    values: dict[str, Any] = {
        "turn": commit.turn, "turn_at": commit.now, "state": commit.state, "result": commit.result,
        "failure": commit.failure, "closing_as": commit.closing_as, "waiting_for": commit.waiting_for,
        "waiting_since": commit.now if commit.state == t.WAITING else None,
        "blocked_by": "".join(f"{each} " for each in commit.misfits), "left_at": None,
        "look_at": None if final else commit.look_at, "warn_at": commit.warn_at,
        "turn_deaths": 0, "turn_begun_at": None,
        "started_at": Coalesce(F("started_at"), Value(commit.now, output_field=MomentField())),
    }  # fmt: skip
    if commit.fingerprint:
        values["fingerprint"] = commit.fingerprint
    if commit.status_text is not None:
        values["status_text"] = commit.status_text
    if commit.history_length is not None:
        values["history_length"] = commit.history_length
    if commit.attributes:
        values["attributes"] = dict(commit.attributes)
    if final:
        values |= {"finished_at": commit.now, "open_key": None}
    return values


def _taking(taken: Mapping[int, int], commit: TurnCommit) -> dict[str, Any]:
    order = by_id(taken, StepResult._meta.get_field("taken_order"))
    return {"taken_turn": commit.turn, "taken_order": order, "taken_at": commit.now, "look_at": None}


def _step(commit: TurnCommit, new: NewEntry) -> StepResult:
    return StepResult(
        instance_id=commit.instance_id, position=new.position, kind=new.kind, name=new.name, state=new.state,
        args=new.args, members=new.members, options=new.options, group=new.group or None, join=new.join or None,
        limited=new.limited, due_at=new.due_at, start_by_at=new.start_by_at, end_by_at=new.end_by_at,
        look_at=new.look_at, compensation=new.compensation, queue=new.queue, result=new.result, failure=new.failure,
        abandoned=new.abandoned, shielded=new.shielded, scheduled_at=commit.now,
        attempt=new.attempt, started_at=commit.now if new.attempt else None,
        finished_at=new.finished_at or (commit.now if new.state in t.STEP_FINAL else None),
        ended_turn=commit.turn if new.state in t.STEP_FINAL else None,
    )  # fmt: skip


def _born(commit: TurnCommit, new: NewEntry, births: Births) -> NewEntry:
    """The row of a child whose key is taken: it has ended, and was never started."""
    failure = births.refused.get(new.position)
    if failure is None:
        return new
    return replace(
        new, state=t.FAILED, failure=failure, attempt=0, finished_at=commit.now, look_at=commit.now + GRACE
    )  # fmt: skip


def marker_hash(key: str) -> str:
    """What tells the keys of markers apart exactly."""
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()
