"""Retrying across parents and children: a child's failure that its parent has not seen yet is taken back from the
parent's row, and a parent whose children failed it opens them again."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db.models import Case, CharField, F, Q, Value, When

from django_app.models import StepResult, WorkflowInstance
from django_app.store.children import GRACE, wakes_of
from django_app.store.starting import Starting
from durable_celery.core import identity, journal
from durable_celery.core import transitions as t
from durable_celery.engine.children import new_child
from durable_celery.errors import NotRetryable
from durable_celery.ports import TurnCommit, Wake

OPEN_AGAIN: dict[str, Any] = {
    "result": None, "failure": None, "finished_at": None, "look_at": None, "resends": 0, "taken_turn": None,
    "taken_at": None, "ended_turn": None,
}  # fmt: skip


class Restarting(Starting):
    """Parts of a transaction that reopens a run; each needs one."""

    # -- upwards ---------------------------------------------------------------------------------------------------

    def hold_parent(self, parent: tuple[UUID, str]) -> None:
        """Before the child's own row: a turn of the parent that is under way may take the failure in, and loses."""
        parents = self.rows(WorkflowInstance).filter(pk=parent[0], state__in=t.OPEN_STATES)
        parents.update(revision=F("revision") + 1)

    def take_failure_back(self, parent: tuple[UUID, str], run_id: UUID) -> None:
        """The parent waits for its child again; ``NotRetryable`` if it has seen the failure."""
        parent_id, position = parent
        row = self.rows(StepResult).filter(instance_id=parent_id, position=position, kind=journal.CHILD)
        state = Case(When(abandoned=True, then=Value(t.ABANDONED)), default=Value(t.RUNNING), output_field=CharField())
        ended_turn = F("ended_turn")
        if row.filter(taken_turn__isnull=True).update(state=state, **{**OPEN_AGAIN, "ended_turn": ended_turn}):
            return
        if row.exists():
            raise NotRetryable(
                f"instance {run_id} is the child of {parent_id} at {position}, which has taken its failure in: retry "
                "that one, if it failed of it, or start anew",
                instance_id=str(run_id),
            )

    # -- downwards -------------------------------------------------------------------------------------------------

    def reopen_children(self, run_id: UUID, turn: int, now: datetime, wakes: list[Wake]) -> None:
        """Those whose end the last turn took in, or gave up; ``NotRetryable`` if one cannot be. Before any step row."""
        rows = self.rows(StepResult).filter(Q(taken_turn=turn) | Q(ended_turn=turn), instance_id=run_id)
        anew: list[StepResult] = []
        for row in rows.filter(kind=journal.CHILD).order_by("id"):
            if row.attempt == 0:
                anew.append(row)
            elif row.taken_turn is not None and row.state != t.SUCCEEDED:
                self._reopen_child(row, now, wakes)
            elif row.taken_turn is None:
                self._want_again(row)
        self.start_again(run_id, anew, now, wakes)

    def _reopen_child(self, row: StepResult, now: datetime, wakes: list[Wake]) -> None:
        child = self.newest_run(identity.child_id(row.instance_id, row.position))
        try:
            self.reopen_run(child.id, child.chain_id, now, wakes)
        except NotRetryable as error:
            raise NotRetryable(
                f"instance {row.instance_id} failed of its child {row.name} at {row.position}, which cannot be retried "
                f"either: {error}",
                instance_id=str(row.instance_id),
            ) from error
        self.rows(StepResult).filter(pk=row.pk).update(state=t.RUNNING, **OPEN_AGAIN)
        queue = self.rows(WorkflowInstance).filter(pk=child.id).values_list("queue", flat=True).get()
        wakes.append(Wake(instance_id=child.id, queue=queue))

    def _want_again(self, row: StepResult) -> None:
        """It was given up when the run ended: waited for again if it goes on or has succeeded all the same."""
        runs = self.rows(WorkflowInstance).filter(parent_id=row.instance_id, parent_position=row.position)
        goes_on = runs.filter(state__in=t.OPEN_STATES, cancel_requested_at__isnull=True).exists()
        if not goes_on and row.state != t.SUCCEEDED:
            raise NotRetryable(
                f"instance {row.instance_id} ended its child {row.name} at {row.position} when it failed, and that "
                "cannot be taken back; start a new one instead",
                instance_id=str(row.instance_id),
            )
        state = t.RUNNING if goes_on else t.SUCCEEDED
        self.rows(StepResult).filter(pk=row.pk).update(state=state, abandoned=False, ended_turn=None)

    def start_again(self, run_id: UUID, anew: Sequence[StepResult], now: datetime, wakes: list[Wake]) -> None:
        """Start the children of rows without one: its key was taken, the turn ended the run, or the run is a fork."""
        if not anew:
            return
        context, chain_id, turn = (
            self.rows(WorkflowInstance).filter(pk=run_id).values_list("context", "chain_id", "turn").get()
        )
        children = [new_child(run_id, context, r.position, r.name, r.args, r.options, now) for r in anew]
        births = self.judge_children(
            TurnCommit(
                instance_id=run_id, revision=0, turn=turn, now=now, state=t.RUNNING, children=children,
                chain_id=chain_id,
            )
        )  # fmt: skip
        self.create(births.start)
        wakes += wakes_of(births.start)
        for row in anew:
            failure = births.refused.get(row.position)
            values: dict[str, Any] = {**OPEN_AGAIN, "state": t.RUNNING, "attempt": 1, "started_at": now}
            if failure is not None:
                values |= {"state": t.FAILED, "attempt": 0, "started_at": None, "failure": failure,
                           "finished_at": now, "look_at": now + GRACE}  # fmt: skip
            self.rows(StepResult).filter(pk=row.pk).update(abandoned=False, scheduled_at=now, **values)

    def reopen_run(self, run_id: UUID, chain_id: UUID, now: datetime, wakes: list[Wake]) -> None:
        """``Steering`` does it."""
        raise NotImplementedError  # pragma: no cover
