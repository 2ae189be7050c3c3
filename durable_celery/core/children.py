"""Child workflows: how a body asks for one, and what it gets back. Pure.

Rules of this file:
- A child's row is RUNNING from the start: its instance is inserted in the transaction that inserts the row, and ends it
  in the transaction in which it ends itself.
- A child that nobody waits for any more is asked to end, as a claimed step is told; what becomes of it is kept. When
  the parent is cancelled, ``parent_close="abandon"`` leaves it alone instead.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import TYPE_CHECKING, Any, TypeVar

from durable_celery.core import identity, journal, transitions
from durable_celery.core.commands import Command
from durable_celery.core.decision import Opening
from durable_celery.core.failure import Failure
from durable_celery.core.journal import Entry, Event
from durable_celery.core.nodes import Node
from durable_celery.errors import ChildFailed, WorkflowError

if TYPE_CHECKING:
    from durable_celery.core.run import Run

T_co = TypeVar("T_co", covariant=True)

TERMINATED = "Terminated"  # the type of the failure of an instance that was terminated


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildTerms:
    """How a child is started; kept on its row. Durations in seconds, ``subject`` a label and primary key.

    ``signal`` is the name and encoded payload of its first message. ``conflict``: "fail" or "terminate_existing".
    """

    version: int = 1
    key: str | None = None
    conflict: str = "fail"
    reuse: str = "allow"
    parent_close: str = "cancel"
    queue: str = ""
    priority: int | None = None
    start_delay: float = 0.0
    execution_timeout: float | None = None
    expected: float | None = None
    attributes: Mapping[str, Any] = field(default_factory=dict)
    memo: Mapping[str, Any] = field(default_factory=dict)
    subject: tuple[str, str] | None = None
    signal: tuple[str, str] | None = None

    def to_text(self) -> str:
        """ASCII JSON of what is not the default, for the row."""
        default = ChildTerms()
        given = {name: value for name, value in asdict(self).items() if value != getattr(default, name)}
        return json.dumps(given, separators=(",", ":"))

    @classmethod
    def from_text(cls, text: str) -> ChildTerms:
        """The terms of a row; fields of a newer release are ignored."""
        data: dict[str, Any] = json.loads(text) if text else {}
        data |= {name: tuple(data[name]) for name in ("subject", "signal") if data.get(name) is not None}
        known = {f.name for f in fields(cls)}
        return cls(**{name: value for name, value in data.items() if name in known})


class ChildCommand(Command[T_co]):
    """Run another workflow as a child; its value is that workflow's result. ``args`` is the encoded call."""

    __slots__ = ("args", "name", "terms")
    what = "child"

    def __init__(self, *, name: str, args: str, terms: ChildTerms) -> None:
        self.name = name
        super().__init__()
        self.args = args
        self.terms = terms

    def describe(self) -> str:
        return f"child {self.name}"

    def instead(self) -> str:
        return f"outside, use {self.name.rpartition('.')[2]}.start(...)"


class ChildNode(Node):
    """A child; settled by the end of its chain of runs."""

    __slots__ = ("command", "terms")

    def __init__(self, run: Run, command: ChildCommand[Any], position: str, parent: Node | None, **place: Any):
        super().__init__(run, position, parent, **place)
        self.command = command
        self.terms = command.terms

    def open(self) -> None:
        entry = self._row(journal.CHILD, self.command.name)
        self.run.leaves[self.position] = self
        if entry is not None:
            if entry.options:
                self.terms = ChildTerms.from_text(entry.options)
            return
        self.run.openings.append(
            Opening(
                position=self.position, kind=journal.CHILD, name=self.command.name, state=transitions.RUNNING,
                args=self.command.args, options=self.terms.to_text(), group=self.group, join=self.join,
                shielded=self.shielded or self.run.cancelling.message is not None,
            )
        )  # fmt: skip

    def claimed(self) -> bool:
        """Whether a cancel of the body waits for it: it has been started, and is not to outlive the body."""
        entry = self.run.entries.get(self.position)
        if entry is None:
            return False
        return entry.state in transitions.STEP_FINAL or self.terms.parent_close != "abandon"

    def tell(self, reason: str) -> None:
        self.run.tell(self.position, reason)

    def abandon(self) -> None:
        super().abandon()
        self.tell("its parent does not need it any more")

    def let_go(self) -> None:
        if self.terms.parent_close == "abandon":
            super().abandon()
        else:
            self.abandon()

    def given_up(self) -> WorkflowError:
        text = f"{self.waiting()} was given up by handle.cancel()"
        return ChildFailed(
            text,
            instance_id=self.run.instance_id,
            workflow=self.command.name,
            step=self.command.name,
            position=self.position,
            child_id=str(identity.child_id(self.run.instance_id, self.position)),
            child_status=transitions.CANCELLED,
            error_type="Cancelled",
            error_types=("Cancelled",),
            message="given up by handle.cancel()",
            cancelled=True,
        )

    def take(self, event: Event) -> None:
        """Settle by the child's end."""
        entry = event.entry
        assert entry is not None
        if entry.state == transitions.SUCCEEDED:
            self.settle(self.run.decode(entry.result))
        else:
            self.settle(error=child_failed(entry, self.run.instance_id))

    def waiting(self) -> str:
        return f"child {self.command.name} at {self.position}"


def child_failed(entry: Entry, instance_id: str) -> ChildFailed:
    """The error a body gets for a child that ended without a result, or that never was."""
    unknown = Failure(type="Unknown", message="no error was recorded")
    failure = Failure.from_text(entry.failure) if entry.failure else unknown
    status = transitions.TERMINATED if failure.type == TERMINATED else entry.state
    was_started = entry.attempt > 0
    child_id = str(identity.child_id(instance_id, entry.position)) if was_started else ""
    what = f"child {entry.name} at {entry.position}"
    text = f"{what} ({child_id}) is {status}: {failure.brief}" if was_started else f"{what}: {failure.brief}"
    return ChildFailed(
        text,
        instance_id=instance_id,
        workflow=entry.name,
        step=entry.name,
        position=entry.position,
        attempts=entry.attempt,
        child_id=child_id,
        child_status=status if was_started else "",
        error_type=failure.type,
        error_types=failure.types,
        message=failure.message,
        traceback=failure.traceback,
        timed_out=failure.timed_out,
        cancelled=failure.cancelled,
        attributes=failure.attributes,
        causes=failure.causes,
    )
