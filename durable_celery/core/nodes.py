"""The tree of what a body waits for: one node a command, opened at a position, settled by events.

A node is opened once, in the order the body yields; a leaf finds its row in the journal or asks for a new one. A node
settles with a value or an error and tells its parent; whoever the body waits for directly resumes it.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from durable_celery.core import identity, journal, transitions
from durable_celery.core.commands import Command, GatherCommand, SignalCommand, StepCommand, TimerCommand
from durable_celery.core.decision import Closing, Opening
from durable_celery.core.failure import Failure, timed_out
from durable_celery.core.journal import Entry, Event
from durable_celery.errors import SignalTimeout, StepFailed, UsageError, WorkflowError

if TYPE_CHECKING:
    from durable_celery.core.run import Run


class Node:
    """A command at its position. ``held``: a limit keeps it back. ``join``: see ``ports.NewEntry``."""

    __slots__ = ("error", "held", "join", "limited", "parent", "position", "run", "settled", "value")

    def __init__(
        self,
        run: Run,
        position: str,
        parent: GatherNode | None,
        *,
        held: bool = False,
        limited: bool = False,
        join: str = "",
    ) -> None:
        self.run = run
        self.position = position
        self.parent = parent
        self.held = held
        self.limited = limited
        self.join = join
        self.settled = False
        self.value: Any = None
        self.error: BaseException | None = None

    def open(self) -> None:
        """Find the row or ask for it; may settle at once."""
        raise NotImplementedError  # pragma: no cover

    def waiting(self) -> str:
        """What it waits for, in words."""
        raise NotImplementedError  # pragma: no cover

    def never_starts(self) -> bool:
        """Whether a limit holds it back still."""
        return False

    def abandon(self) -> None:
        """Nobody waits for it any more."""

    def settle(self, value: Any = None, error: BaseException | None = None) -> None:
        """End with a value or an error; the second time changes nothing."""
        if self.settled:
            return
        self.settled, self.value, self.error = True, value, error
        self.run.leaves.pop(self.position, None)
        if self.parent is not None:
            self.parent.count(self)

    def _row(self, kind: str, name: str, members: int = 0) -> Entry | None:
        """The journal's row at this position, checked to be of this kind and name."""
        entry = self.run.entries.get(self.position)
        self.run.match(self.position, kind, name, members, entry)
        return entry

    def _group(self) -> str:
        return self.parent.position if self.parent is not None else ""


class StepNode(Node):
    """A step; settled by its row's outcome."""

    __slots__ = ("command", "entry")

    def __init__(self, run: Run, command: StepCommand[Any], *place: Any, **options: Any) -> None:
        super().__init__(run, *place, **options)
        self.command = command
        self.entry: Entry | None = None

    def open(self) -> None:
        self.entry = self._row(journal.STEP, self.command.name)
        self.run.leaves[self.position] = self
        if self.entry is not None:
            return
        terms, now = self.command.terms, self.run.now
        self.run.openings.append(
            Opening(
                position=self.position,
                kind=journal.STEP,
                name=self.command.name,
                state=transitions.HELD if self.held else transitions.SCHEDULED,
                args=self.command.args,
                options=terms.text,
                group=self._group(),
                join=self.join,
                limited=self.limited,
                start_by_at=_after(now, None if self.held else terms.schedule_to_start),
                end_by_at=_after(now, terms.schedule_to_close),
                compensation=self.run.undo_text(self.command.undo),
                queue=self.command.queue,
            )
        )

    def take(self, event: Event) -> None:
        entry = event.entry
        assert entry is not None
        if entry.state == transitions.SUCCEEDED:
            self.settle(self.run.decode(entry.result))
            return
        failure = (
            Failure.from_text(entry.failure)
            if entry.failure
            else Failure(type="Unknown", message="no error was recorded")
        )
        self.settle(error=step_failed(failure, entry, self.run.instance_id))

    def never_starts(self) -> bool:
        return self.held if self.entry is None else self.entry.never_started

    def abandon(self) -> None:
        self.run.withdraw(self.position)

    def waiting(self) -> str:
        return f"step {self.command.name} at {self.position}"


class TimerNode(Node):
    """A sleep; due at the instant fixed when its row was first written."""

    __slots__ = ("command", "due_at")

    def __init__(self, run: Run, command: TimerCommand, *place: Any, **options: Any) -> None:
        super().__init__(run, *place, **options)
        self.command = command

    def open(self) -> None:
        entry = self._row(journal.TIMER, "")
        self.run.leaves[self.position] = self
        if entry is not None:
            self.due_at = entry.due_at
            return
        self.due_at = self.command.until if self.command.seconds is None else _after(self.run.now, self.command.seconds)
        self.run.openings.append(
            Opening(position=self.position, kind=journal.TIMER, state=transitions.SCHEDULED, due_at=self.due_at,
                    group=self._group(), join=self.join)
        )  # fmt: skip

    def take(self, event: Event) -> None:
        self.run.close_row(Closing(position=self.position, state=transitions.SUCCEEDED, at=self.due_at or event.at))
        self.settle(None)

    def abandon(self) -> None:
        self.run.withdraw(self.position)

    def waiting(self) -> str:
        return f"sleep at {self.position} until {self.due_at:%Y-%m-%d %H:%M:%S} UTC" if self.due_at else "sleep"


class SignalNode(Node):
    """A wait for a message; settled by the oldest unread one of its name, or by its time-out."""

    __slots__ = ("command", "due_at")

    def __init__(self, run: Run, command: SignalCommand[Any], *place: Any, **options: Any) -> None:
        super().__init__(run, *place, **options)
        self.command = command
        self.due_at = None

    def open(self) -> None:
        entry = self._row(journal.SIGNAL, self.command.name)
        if entry is not None:
            self.due_at = entry.due_at
        else:
            self.due_at = _after(self.run.now, self.command.seconds)
            self.run.openings.append(
                Opening(position=self.position, kind=journal.SIGNAL, name=self.command.name, due_at=self.due_at,
                        state=transitions.SCHEDULED, group=self._group(), join=self.join)
            )  # fmt: skip
        unread = self.run.unread.get(self.command.name)
        if unread:
            self.deliver(unread.popleft())
            return
        self.run.leaves[self.position] = self
        self.run.waits.setdefault(self.command.name, []).append(self)

    def deliver(self, message: journal.Message) -> None:
        """Give the wait this message."""
        self.run.forget_wait(self)
        self.run.close_row(
            Closing(position=self.position, state=transitions.SUCCEEDED, result=message.payload, at=self.run.now)
        )
        self.settle(self.run.decode_message(message))

    def take(self, event: Event) -> None:
        self.run.forget_wait(self)
        entry = event.entry
        default = entry.result if entry is not None and entry.result is not None else self.command.default
        if default is not None:
            self.run.close_row(
                Closing(position=self.position, state=transitions.SUCCEEDED, result=default, at=self.due_at or event.at)
            )
            self.settle(self.run.decode(default))
            return
        text = f"no signal {self.command.name!r} came within {self.command.seconds:g} s" if self.command.seconds else (
            f"no signal {self.command.name!r} was there"
        )  # fmt: skip
        self.run.close_row(
            Closing(
                position=self.position, state=transitions.FAILED, failure=timed_out(text), at=self.due_at or event.at
            )
        )
        self.settle(error=SignalTimeout(
            text, signal=self.command.name, position=self.position, instance_id=self.run.instance_id
        ))  # fmt: skip

    def abandon(self) -> None:
        self.run.forget_wait(self)
        self.run.withdraw(self.position)

    def waiting(self) -> str:
        until = f" until {self.due_at:%Y-%m-%d %H:%M:%S} UTC" if self.due_at else ""
        return f"signal {self.command.name!r} at {self.position}{until}"


class GatherNode(Node):
    """Members side by side. Steps under a limit are rows from the start, held back; other members open one by one."""

    __slots__ = ("_failed", "_good", "_next", "_settled_below", "command", "members")

    def __init__(self, run: Run, command: GatherCommand[Any], *place: Any, **options: Any) -> None:
        super().__init__(run, *place, **options)
        self.command = command
        self.members: list[Node] = []
        self._next = 0  # members opened so far
        self._good = 0
        self._failed = 0
        self._settled_below = 0  # every member before this index is settled or never starts

    def open(self) -> None:
        commands, rules = self.command.members, self.command.rules
        entry = self._row(journal.GATHER, "", len(commands))
        if entry is None:
            goes_on = rules.return_exceptions or rules.tolerate > 0 or rules.needed is not None
            self.run.openings.append(
                Opening(position=self.position, kind=journal.GATHER, members=len(commands), state=transitions.SCHEDULED,
                        group=self._group(), options='{"goes_on":true}' if goes_on else "")
            )  # fmt: skip
        one_by_one = rules.limit is not None and not all(isinstance(c, StepCommand) for c in commands)
        held_rows = rules.limit is not None and not one_by_one
        alone = one_by_one or rules.needed is not None or rules.tolerate > 0
        join = "" if alone or (self.parent is not None and not self.join) else (self.join or self.position)
        for index, command in enumerate(commands):
            held = held_rows and index >= (rules.limit or 0)
            place = identity.member(self.position, index)
            self.members.append(node_of(self.run, command, place, self, held=held, limited=held_rows, join=join))
        first = (rules.limit or 0) if one_by_one else len(commands)
        while self._next < min(first, len(commands)):
            self._open_next()
        self.member_settled()

    def count(self, node: Node) -> None:
        """A member has just ended."""
        if node.error is None:
            self._good += 1
        else:
            self._failed += 1

    def member_settled(self) -> None:
        """One more member has ended; maybe that ends the gather, or lets the next member start."""
        rules = self.command.rules
        while not self.settled:
            free = rules.return_exceptions or rules.needed is not None
            stopping = not free and self._failed > rules.tolerate
            pending = self._next - self._good - self._failed
            if rules.needed is not None and self._good >= rules.needed:
                self._finish(None)
            elif rules.needed is not None and len(self.members) - self._failed < rules.needed:
                self._finish(self._first_error())
            elif stopping and not self._any_running():
                self._finish(self._first_error())
            elif not stopping and not pending and self._next >= len(self.members):
                self._finish(None)
            elif not stopping and self._next < len(self.members) and pending < (rules.limit or 0):
                self._open_next()
            else:
                return

    def never_starts(self) -> bool:
        return bool(self.members) and all(node.never_starts() for node in self.members)

    def abandon(self) -> None:
        for node in self.members[: self._next]:
            if not node.settled:
                node.abandon()
        self.run.withdraw(self.position)

    def waiting(self) -> str:
        first = next((n for n in self.members[: self._next] if not n.settled and not n.never_starts()), None)
        done = f"gather at {self.position}, {self._good + self._failed} of {len(self.members)} ended"
        return f"{done}, first {first.waiting()}" if first else done

    def _open_next(self) -> None:
        node = self.members[self._next]
        self._next += 1
        node.open()

    def _any_running(self) -> bool:
        while self._settled_below < self._next:
            node = self.members[self._settled_below]
            if not node.settled and not node.never_starts():
                return True
            self._settled_below += 1
        return False

    def _first_error(self) -> BaseException | None:
        return next((node.error for node in self.members if node.error is not None), None)

    def _finish(self, error: BaseException | None) -> None:
        for node in self.members[: self._next]:
            if not node.settled:
                node.abandon()
        state = transitions.SUCCEEDED if error is None else transitions.FAILED
        self.run.close_row(Closing(position=self.position, state=state, at=self.run.now))
        if error is None:
            rules = self.command.rules
            keeps = rules.return_exceptions or rules.tolerate > 0 or rules.needed is not None
            self.settle(
                self._shape([n.value if n.error is None or not keeps else n.error for n in self.members], tuple)
            )
            return
        if isinstance(error, WorkflowError):
            error.__dict__.update(
                results=self._shape([n.value for n in self.members], list),
                errors=self._shape([n.error for n in self.members], list),
            )
        self.settle(error=error)

    def _shape(self, values: list[Any], kind: Callable[[list[Any]], Any]) -> Any:
        names = self.command.rules.names
        return kind(values) if names is None else dict(zip(names, values, strict=True))


def node_of(run: Run, command: Command[Any], position: str, parent: GatherNode | None, **options: Any) -> Node:
    """The node for a command; it is not open yet."""
    if isinstance(command, StepCommand):
        return StepNode(run, command, position, parent, **options)
    if isinstance(command, TimerCommand):
        return TimerNode(run, command, position, parent, **options)
    if isinstance(command, SignalCommand):
        return SignalNode(run, command, position, parent, **options)
    if isinstance(command, GatherCommand):
        return GatherNode(run, command, position, parent, **options)
    raise UsageError(f"{command.describe()} cannot be yielded")


def step_failed(failure: Failure, entry: Entry, instance_id: str) -> StepFailed:
    """The error a body gets for a step's recorded failure."""
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
    )


def _after(now: Any, seconds: float | None) -> Any:
    return None if seconds is None else now + timedelta(seconds=seconds)
