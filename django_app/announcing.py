"""The store that also sends Django's signals. It costs a query only where somebody listens."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any
from uuid import UUID

from django.dispatch import Signal

from django_app import signals
from django_app.models import WorkflowInstance
from django_app.store import DjangoStore
from durable_celery.core import transitions as t
from durable_celery.core.failure import Failure
from durable_celery.ports import AttemptRecord, Changed, Committed, OpenStep, StepChange, Stuck, TurnCommit, Wake

if TYPE_CHECKING:
    from django_app.tested import TestedStore

ENDS = tuple(state for state in t.FINAL_STATES if state != t.CONTINUED)  # a continued run is not the end of its chain


class AnnouncingStore(DjangoStore):
    """Each signal goes out after the commit of what it tells, by ``send_robust``: a receiver that raises is logged."""

    def on_clock(self, clock: Callable[[], datetime]) -> AnnouncingStore:
        """The same tables by another clock than the database's."""
        return AnnouncingStore(self.alias, clock=clock)

    def for_tests(self, clock: Callable[[], datetime]) -> TestedStore:
        """The same, for a test that may stand in a transaction which is never committed."""
        from django_app.tested import TestedStore  # a project in production has no use for it

        return TestedStore(self.alias, clock=clock)

    def commit_turn(self, commit: TurnCommit) -> Committed | None:
        """Apply a turn; tell of a start, an end, a block."""
        committed = super().commit_turn(commit)
        if committed is not None:
            if commit.turn == 1 and commit.state != t.BLOCKED:
                self._announce(signals.workflow_started, commit.instance_id)
            if commit.state == t.BLOCKED:
                self._announce(signals.workflow_blocked, commit.instance_id, waiting_for=commit.waiting_for)
            elif commit.state in ENDS:
                self._announce(signals.workflow_finished, commit.instance_id, state=commit.state)
        return committed

    def change_step(self, step: OpenStep, change: StepChange, *, record: AttemptRecord | None = None) -> Changed:
        """Write a change; tell of a step that has no further attempt."""
        changed = super().change_step(step, change, record=record)
        if changed.ok and change.state == t.FAILED:
            failure = Failure.from_text(change.failure) if change.failure else Failure(type="")
            self._announce(
                signals.step_failed,
                step.instance_id,
                step=step.name,
                position=step.position,
                attempts=change.attempt,
                error_type=failure.type,
                message=failure.message,
            )
        return changed

    def terminate(
        self, instance_id: UUID, now: datetime, failure: str | None = None, wakes: list[Wake] | None = None
    ) -> bool:
        """End an instance at once; tell of its end."""
        ended = super().terminate(instance_id, now, failure, wakes)
        if ended:
            self._announce(signals.workflow_finished, instance_id, state=t.TERMINATED)
        return ended

    def newly_stuck(self, now: datetime, limit: int) -> Sequence[Stuck]:
        """Tell of each instance that has become stuck."""
        found = super().newly_stuck(now, limit)
        for stuck in found:
            self._announce(signals.instance_stuck, stuck.instance_id, since=stuck.since)
        return found

    def _announce(self, signal: Signal, instance_id: UUID, **told: Any) -> None:
        if signal.has_listeners(WorkflowInstance):
            self.on_commit(lambda: self._send(signal, instance_id, told))

    def _send(self, signal: Signal, instance_id: UUID, told: dict[str, Any]) -> None:
        of = self.rows(WorkflowInstance).filter(pk=instance_id)
        row = of.values_list("chain_id", "run_number", "name", "key").first()
        if row is not None:
            chain_id, run_number, name, key = row
            if run_number > 1 and signal is signals.workflow_started:
                return  # the chain has started once, and ends once
            told = self._without_secrets(instance_id, told)
            signal.send_robust(WorkflowInstance, instance_id=chain_id, workflow=name, key=key, **told)

    def _without_secrets(self, instance_id: UUID, told: dict[str, Any]) -> dict[str, Any]:
        """Receivers write mails and lines of a log of what an error says."""
        words = [name for name in ("waiting_for", "message") if told.get(name)]
        scrub = self.scrubbers([instance_id]).get(instance_id) if words else None
        return told if scrub is None else {**told, **{name: scrub(told[name]) for name in words}}
