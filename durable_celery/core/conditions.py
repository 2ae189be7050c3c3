"""Waits for something that the body itself can see to be true. Pure.

Rules of this file:
- A condition is looked at when it is yielded, and whenever an event has run its course: handlers have run, and what the
  event resumed has yielded again. At its time-out it is looked at once more; time alone does nothing else.
- What it gives is found again on replay from the same events, since it may look at nothing but the body's own values.
- Code that asks for something, or records something, while it should only look, blocks the instance.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING, Any

from durable_celery.core import journal, scope, transitions
from durable_celery.core.commands import Command
from durable_celery.core.decision import Closing, Opening
from durable_celery.core.failure import failure_of
from durable_celery.core.journal import Event
from durable_celery.core.nodes import Node, after, until
from durable_celery.errors import UsageError

if TYPE_CHECKING:
    from durable_celery.core.run import Run


class ConditionCommand(Command[bool]):
    """Wait until ``holds()`` is true, at most so many seconds."""

    __slots__ = ("holds", "seconds")
    what = "wait_until"

    def __init__(self, holds: Callable[[], Any], *, seconds: float | None) -> None:
        super().__init__()
        self.holds = holds
        self.seconds = seconds


class ConditionNode(Node):
    """A condition; settled by whatever makes it true, or by its time-out."""

    __slots__ = ("command", "due_at")

    def __init__(self, run: Run, command: ConditionCommand, position: str, parent: Node | None, **place: Any):
        super().__init__(run, position, parent, **place)
        self.command = command
        self.due_at: datetime | None = None

    def open(self) -> None:
        entry = self._row(journal.CONDITION, "")
        if entry is not None:
            self.due_at = entry.due_at
        else:
            self.due_at = after(self.run.now, self.command.seconds)
            self.run.openings.append(
                Opening(position=self.position, kind=journal.CONDITION, state=transitions.SCHEDULED,
                        due_at=self.due_at, group=self.group, join=self.join)
            )  # fmt: skip
        self.run.leaves[self.position] = self
        self.run.conditions.append(self)
        self.look()

    def look(self) -> bool:
        """Settle if it is true; whether it was."""
        if self._answer():
            self._end(self.run.now, value=True)
        return self.settled

    def take(self, event: Event) -> None:
        """Settle: its time is over."""
        entry = event.entry
        assert entry is not None
        if entry.state == transitions.SUCCEEDED:
            value = bool(self.run.decode(entry.result))
        else:
            value = self._answer()
        if not self.settled:
            self._end(self.due_at or event.at, value=value)

    def abandon(self) -> None:
        self.run.conditions.remove(self)
        super().abandon()

    def waiting(self) -> str:
        return f"condition at {self.position}{until(self.due_at)}"

    def _answer(self) -> bool:
        """What the condition says; an error of its own is the body's, at the yield."""
        try:
            return ask(self.run, self.command.holds, "the condition of wait_until")
        except Exception as error:
            if self.run.interrupts(error) or isinstance(error, UsageError):
                raise
            self._end(self.run.now, error=error)
            return False

    def _end(self, at: datetime, value: bool = False, error: BaseException | None = None) -> None:
        self.run.conditions.remove(self)
        self.run.ignore(self.position)  # its time-out may be due as well
        if error is None:
            result, state, failure = self.run.encode(value, "the condition"), transitions.SUCCEEDED, None
        else:
            result, state, failure = None, transitions.FAILED, failure_of(error)
        self.run.close_row(Closing(position=self.position, state=state, result=result, failure=failure, at=at))
        self.settle(value if error is None else None, error)


def look(run: Run) -> bool:
    """Look at every open condition; whether one of them has settled, which rises next."""
    for node in list(run.conditions):
        if node.look() or node.settled:
            run.risen.append(node)
            return True
    return False


def ask(run: Run, function: Callable[..., Any], what: str, *args: Any) -> bool:
    """Call a function that may only look, and is asked for yes or no."""
    with scope.looking(run, what):
        answer = function(*args)
    if inspect.isgenerator(answer) or inspect.iscoroutine(answer):
        answer.close()
        raise UsageError(
            f"{what} gave a {type(answer).__name__}, expected True or False; it can neither yield nor await"
        )
    return bool(answer)
