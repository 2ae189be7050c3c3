"""What a test sees of one instance."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar
from uuid import UUID

from durable_celery import runtime
from durable_celery.client import get_handle
from durable_celery.core import transitions
from durable_celery.errors import DurableError, InstanceNotFound
from durable_celery.handle import WorkflowHandle
from durable_celery.outcomes import HistoryEntry, outcome_of
from durable_celery.ports import InstanceRow

R = TypeVar("R")


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Run(Generic[R]):
    """An instance under test. Everything is read afresh; a continued run is followed."""

    handle: WorkflowHandle[R]
    steps_of: Callable[[UUID], list[str]]

    def __deepcopy__(self, memo: object) -> Run[R]:
        """The same: Django copies what ``setUpTestData`` leaves in the class for each test."""
        return self

    def __repr__(self) -> str:
        try:
            row = self._row()
        except InstanceNotFound as gone:
            return f"<run {self.id}: {gone}>"
        error, waiting = self.error, self.waiting_for
        more = f", {error}" if error is not None else f", waits for {waiting}" if waiting else ""
        return f"<run of {row.name} {row.chain_id}: {self.status}{more}>"

    @property
    def id(self) -> str:
        """The id of the instance."""
        return self.handle.id

    @property
    def status(self) -> str:
        """The state, or PAUSED while it is paused."""
        return self.handle.status

    @property
    def result(self) -> R | None:
        """The value it returned; None before it has completed, and if it ended in another way."""
        row = self._row()
        return outcome_of(row) if row.state == transitions.COMPLETED else None

    @property
    def error(self) -> DurableError | None:
        """What ``handle.result()`` would raise; None while it is open, and once it has completed.

        ``WorkflowFailed``, ``WorkflowCancelled``, ``WorkflowTerminated``; of a BLOCKED one ``WorkflowBlocked``.
        ``error.matches(CarrierDown)`` tells what lies behind a failure.
        """
        row = self._row()
        if row.state not in transitions.FINAL_STATES and row.state != transitions.BLOCKED:
            return None
        try:
            outcome_of(row)
        except DurableError as error:
            return error
        return None

    @property
    def steps(self) -> list[str]:
        """The names of the steps that a worker began, in that order, each once however often it was tried.

        Compensations are among them, steps of child workflows are not.
        """
        return self.steps_of(UUID(self.id))

    @property
    def history(self) -> Sequence[HistoryEntry]:
        """The journal, as ``handle.history()`` gives it."""
        return self.handle.history()

    @property
    def waiting_for(self) -> str:
        """In words: on what, since and until when; of a BLOCKED one the error. Empty once closed."""
        return self.handle.waiting_for

    def _row(self) -> InstanceRow:
        row = runtime.current().store.find(UUID(self.id))
        if row is None:
            raise InstanceNotFound.of(self.id)
        return row


def handle_of(target: Any) -> WorkflowHandle[Any]:
    """The handle of a run, a handle or an id."""
    if isinstance(target, Run):
        return target.handle
    return target if isinstance(target, WorkflowHandle) else get_handle(target)
