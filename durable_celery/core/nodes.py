"""What a body waits for: one node a command, opened at a position, settled by events.

A node is opened once, in the order the body yields; a leaf finds its row in the journal or asks for a new one. A node
settles with a value or an error and tells its parent; whoever the body waits for directly resumes it.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from durable_celery.core import journal, transitions
from durable_celery.core.commands import SignalCommand, StepCommand, TimerCommand
from durable_celery.core.decision import Closing, Opening
from durable_celery.core.failure import Failure, timed_out
from durable_celery.core.journal import Entry, Event, Message
from durable_celery.errors import SignalTimeout, StepFailed, WorkflowCancelled, WorkflowError

if TYPE_CHECKING:
    from durable_celery.core.run import Run


class Node:
    """A command at its position. ``held``: a limit keeps it back. ``join``: see ``ports.NewEntry``."""

    __slots__ = (
        "error", "frozen", "gone", "held", "join", "limited", "parent", "position", "run", "settled", "shielded",
        "value",
    )  # fmt: skip

    def __init__(
        self,
        run: Run,
        position: str,
        parent: Node | None,
        *,
        held: bool = False,
        limited: bool = False,
        join: str = "",
        shielded: bool = False,
    ) -> None:
        self.run = run
        self.position = position
        self.parent = parent
        self.held = held
        self.limited = limited
        self.join = join
        self.shielded = shielded  # goes on whatever cancels the body
        self.frozen = False  # being cancelled: opens nothing more and does not end by itself
        self.settled = False
        self.gone = False  # nobody waits for it any more
        self.value: Any = None
        self.error: BaseException | None = None

    def open(self) -> None:
        """Find the row or ask for it; may settle at once."""
        raise NotImplementedError  # pragma: no cover

    def waiting(self) -> str:
        """What it waits for, in words."""
        raise NotImplementedError  # pragma: no cover

    def abandon(self) -> None:
        """Nobody waits for it any more: it never settles."""
        self.gone = True
        self.run.withdraw(self.position)

    def let_go(self) -> None:
        """The body is being cancelled and does not wait for it."""
        self.abandon()

    def tell(self, reason: str) -> None:
        """The body is being cancelled and waits for it: what can hear that is told. A worker asks by its heartbeat."""

    def halt(self) -> bool:
        """The body is being cancelled and waits for it: start nothing more; whether it cannot end by itself now."""
        return False

    def children(self) -> list[Node] | None:
        """The open nodes right below; None of a leaf."""
        return None

    def unopened(self) -> bool:
        """Whether something below would still be opened."""
        return False

    def stopped_by(self, gave_up: Sequence[bool]) -> bool:
        """Whether it cannot end by itself any more; ``gave_up`` says of each child whether it cannot."""
        return self.unopened() or any(gave_up)

    def claimed(self) -> bool:
        """Whether a worker had it when the cancel now taken in was stored; it may have ended since."""
        return False

    def count(self, node: Node) -> None:
        """A member has just ended; ``member_settled`` follows."""

    def member_settled(self) -> None:
        """One more member has ended: maybe that ends this node."""

    def given_up(self) -> WorkflowError:
        """What whoever joins it gets once it was given up by its handle."""
        text = f"{self.waiting()} was given up by handle.cancel()"
        return WorkflowCancelled(text, instance_id=self.run.instance_id, reason=text)

    def reclaim(self) -> list[Message]:
        """The messages taken at and below it; nobody will get them from it any more."""
        return [message for node in self.children() or () for message in node.reclaim()]

    def settle(self, value: Any = None, error: BaseException | None = None) -> None:
        """End with a value or an error."""
        self.settled, self.value, self.error = True, value, error
        self.run.leaves.pop(self.position, None)
        if self.parent is not None:
            self.parent.count(self)

    def _row(self, kind: str, name: str, members: int = 0) -> Entry | None:
        """The journal's row at this position, checked to be of this kind and name."""
        entry = self.run.entries.get(self.position)
        self.run.match(self.position, kind, name, members, entry)
        return entry

    @property
    def group(self) -> str:
        """The position of what it is a member of."""
        return self.parent.position if self.parent is not None else ""


class StepNode(Node):
    """A step; settled by its row's outcome."""

    __slots__ = ("command",)

    def __init__(self, run: Run, command: StepCommand[Any], position: str, parent: Node | None, **place: Any):
        super().__init__(run, position, parent, **place)
        self.command = command

    def open(self) -> None:
        entry = self._row(journal.STEP, self.command.name)
        self.run.leaves[self.position] = self
        if entry is not None:
            self.held = entry.state == transitions.HELD
            return
        command, terms = self.command, self.command.terms
        let_go = None if self.held else self.run.now  # whoever lets a held one go starts its clocks
        self.run.openings.append(
            Opening(
                position=self.position,
                kind=journal.STEP,
                name=command.name,
                state=transitions.HELD if self.held else transitions.SCHEDULED,
                args=command.args,
                options=terms.text,
                group=self.group,
                join=self.join,
                limited=self.limited,
                start_by_at=after(let_go, terms.schedule_to_start),
                end_by_at=after(let_go, terms.schedule_to_close),
                compensation="" if command.undo is None else command.undo.to_text(),
                queue=command.queue,
                shielded=self.shielded or self.run.cancelling.message is not None,
            )
        )

    def claimed(self) -> bool:
        entry = self.run.entries.get(self.position)
        return entry is not None and entry.state in (*transitions.CLAIMED, *transitions.STEP_FINAL)

    def take(self, event: Event) -> None:
        """Settle by the row's outcome."""
        entry = event.entry
        assert entry is not None
        if entry.state == transitions.SUCCEEDED:
            self.settle(self.run.decode(entry.result))
        else:
            self.settle(error=step_failed(entry, self.run.instance_id))

    def given_up(self) -> WorkflowError:
        # Nothing of its row: how many attempts there were is not the same on replay.
        return StepFailed(
            f"step {self.command.name} at {self.position} was given up by handle.cancel()",
            instance_id=self.run.instance_id,
            step=self.command.name,
            position=self.position,
            error_type="Cancelled",
            error_types=("Cancelled",),
            message="given up by handle.cancel()",
            cancelled=True,
        )

    def waiting(self) -> str:
        return f"step {self.command.name} at {self.position}"


class TimerNode(Node):
    """A sleep; due at the instant fixed when its row was first written."""

    __slots__ = ("command", "due_at")

    def __init__(self, run: Run, command: TimerCommand, position: str, parent: Node | None, **place: Any):
        super().__init__(run, position, parent, **place)
        self.command = command
        self.due_at: datetime | None = None

    def open(self) -> None:
        entry = self._row(journal.TIMER, "")
        self.run.leaves[self.position] = self
        if entry is not None:
            self.due_at = entry.due_at
            return
        self.due_at = self.command.until or after(self.run.now, self.command.seconds)
        self.run.openings.append(
            Opening(position=self.position, kind=journal.TIMER, state=transitions.SCHEDULED, due_at=self.due_at,
                    group=self.group, join=self.join)
        )  # fmt: skip

    def take(self, event: Event) -> None:
        """Settle: its time has come."""
        self.run.close_row(Closing(position=self.position, state=transitions.SUCCEEDED, at=self.due_at or event.at))
        self.settle(None)

    def waiting(self) -> str:
        return f"sleep at {self.position}{until(self.due_at)}"


class SignalNode(Node):
    """A wait for a message; settled by the oldest unread one of its name, or by its time-out."""

    __slots__ = ("command", "due_at", "message", "warn_at")

    def __init__(self, run: Run, command: SignalCommand[Any], position: str, parent: Node | None, **place: Any):
        super().__init__(run, position, parent, **place)
        self.command = command
        self.due_at: datetime | None = None
        self.message: Message | None = None  # the one it took
        self.warn_at: datetime | None = None

    def open(self) -> None:
        self.run.handlers.waits(self.command.name)
        self.warn_at = after(self.run.now, self.command.warn_seconds)
        entry = self._row(journal.SIGNAL, self.command.name)
        if entry is not None:
            self.due_at = entry.due_at
        else:
            self.due_at = after(self.run.now, self.command.seconds)
            self.run.openings.append(
                Opening(position=self.position, kind=journal.SIGNAL, name=self.command.name, due_at=self.due_at,
                        state=transitions.SCHEDULED, group=self.group, join=self.join)
            )  # fmt: skip
        unread = self.run.unread.get(self.command.name)
        if unread:
            self.deliver(unread.popleft())
            return
        self.run.leaves[self.position] = self
        self.run.waits.setdefault(self.command.name, []).append(self)

    def deliver(self, message: Message) -> None:
        """Give the wait this message; its time-out, due or not, means nothing then."""
        self.message = message
        self.run.consumed(message)
        self.run.forget_wait(self)
        self.run.ignore(self.position)
        self.run.close_row(
            Closing(position=self.position, state=transitions.SUCCEEDED, result=message.payload, at=self.run.now)
        )
        self.settle(self.run.decode(message.payload))

    def take(self, event: Event) -> None:
        """Settle by the time-out: as it was recorded, else by the default or the error of the code."""
        entry = event.entry
        assert entry is not None
        self.run.forget_wait(self)
        at = self.due_at or event.at
        recorded = Failure.from_text(entry.failure) if entry.failure else None
        default = entry.result if entry.state in transitions.STEP_FINAL else self.command.default
        if default is not None:
            self.run.close_row(Closing(position=self.position, state=transitions.SUCCEEDED, result=default, at=at))
            self.settle(self.run.decode(default))
            return
        failure = recorded or timed_out(_nothing_came(self.command))
        self.run.close_row(Closing(position=self.position, state=transitions.FAILED, failure=failure, at=at))
        self.settle(
            error=SignalTimeout(
                failure.message, signal=self.command.name, position=self.position, instance_id=self.run.instance_id
            )
        )

    def abandon(self) -> None:
        self.run.forget_wait(self)
        super().abandon()

    def reclaim(self) -> list[Message]:
        message, self.message = self.message, None
        return [] if message is None else [message]

    def waiting(self) -> str:
        return f"signal {self.command.name!r} at {self.position}{until(self.due_at)}"


def step_failed(entry: Entry, instance_id: str) -> StepFailed:
    """The error a body gets for a step that ended without a result."""
    failure = (
        Failure.from_text(entry.failure) if entry.failure else Failure(type="Unknown", message="no error was recorded")
    )
    starts = f"after {entry.attempt} attempt{'s' if entry.attempt != 1 else ''}"
    return StepFailed(
        f"step {entry.name} at {entry.position} failed {starts}: {failure.brief}",
        instance_id=instance_id,
        step=entry.name,
        position=entry.position,
        attempts=entry.attempt,
        error_type=failure.type,
        error_types=failure.types,
        message=failure.message,
        traceback=failure.traceback,
        timed_out=failure.timed_out,
        lost=failure.lost,
        cancelled=failure.cancelled,
        attributes=failure.attributes,
        earlier=failure.earlier,
        causes=failure.causes,
    )


def after(now: datetime | None, seconds: float | None) -> datetime | None:
    """``seconds`` after ``now``, if there are both."""
    return None if now is None or seconds is None else now + timedelta(seconds=seconds)


def _nothing_came(command: SignalCommand[Any]) -> str:
    if not command.seconds:
        return f"no signal {command.name!r} was there"
    return f"no signal {command.name!r} came within {command.seconds:g} s"


def until(due_at: datetime | None) -> str:
    """`` until ...`` in words; empty without a time."""
    return f" until {due_at:%Y-%m-%d %H:%M:%S} UTC" if due_at is not None else ""
