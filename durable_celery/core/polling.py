"""A step that is asked again and again, until the body likes what it says. Pure.

Rules of this file:
- It is one row, however often it is asked. A result that is not liked is no outcome: no turn takes it in, and the row
  is set to run again. So only the liked one is in the journal, and replay asks nobody whether it was.
- Whoever says whether a result is liked may only look. An error there blocks the instance, with the result as it is.
- Each result that is not liked starts the attempts of the step afresh; what bounds them all is the poll's time-out.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from durable_celery.core import journal, transitions
from durable_celery.core.commands import Command, StepCommand
from durable_celery.core.conditions import ask
from durable_celery.core.decision import Again, Opening
from durable_celery.core.failure import Failure
from durable_celery.core.journal import Entry, Event
from durable_celery.core.nodes import StepNode, after, step_failed
from durable_celery.errors import PollTimeout, type_name

if TYPE_CHECKING:
    from durable_celery.core.nodes import Node
    from durable_celery.core.run import Run

T_co = TypeVar("T_co", covariant=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class PollRules:
    """How often it is asked, and for how long; seconds. They stay in force as they are recorded with the row."""

    every: float
    timeout: float | None = None
    schedule_to_start: float | None = None  # of the step: how long each time it may stay in the queue

    def to_text(self, terms: str) -> str:
        """The terms of the step with these rules, as JSON for the row."""
        data: dict[str, Any] = json.loads(terms) if terms else {}
        return json.dumps({**data, "poll": {"every": self.every, "timeout": self.timeout}})

    @classmethod
    def from_text(cls, text: str) -> PollRules:
        """The rules of a row."""
        data: dict[str, Any] = json.loads(text)
        return cls(schedule_to_start=data.get("schedule_to_start"), **data["poll"])


class PollCommand(Command[T_co]):
    """Run a step every so often until ``likes(result)``."""

    __slots__ = ("likes", "member", "rules")
    what = "poll"

    def __init__(self, member: StepCommand[T_co], *, likes: Callable[[Any], Any], rules: PollRules) -> None:
        super().__init__()
        member.use()
        self.member = member
        self.likes = likes
        self.rules = rules

    def describe(self) -> str:
        return f"poll of {self.member.describe()}" if hasattr(self, "member") else "poll"


class PollNode(StepNode):
    """A poll; settled by the liked result, by the step's own failure, or by its time-out."""

    __slots__ = ("poll", "rules")

    def __init__(self, run: Run, command: PollCommand[Any], position: str, parent: Node | None, **place: Any):
        # Each result needs a turn to be looked at, so it joins nothing.
        super().__init__(run, command.member, position, parent, **{**place, "join": ""})
        self.poll = command
        self.rules = command.rules

    def open(self) -> None:
        entry = self._row(journal.POLL, self.command.name)
        self.run.leaves[self.position] = self
        if entry is not None:
            self.rules = PollRules.from_text(entry.options)
            return
        command = self.command
        self.run.openings.append(
            Opening(
                position=self.position,
                kind=journal.POLL,
                name=command.name,
                state=transitions.SCHEDULED,
                args=command.args,
                options=self.rules.to_text(command.terms.text),
                group=self.group,
                start_by_at=after(self.run.now, self.rules.schedule_to_start),
                end_by_at=after(self.run.now, self.rules.timeout),
                queue=command.queue,
                shielded=self.shielded or self.run.cancelling.message is not None,
            )
        )

    def take(self, event: Event) -> None:
        """Settle by the outcome, unless it is a result that is not liked."""
        entry = event.entry
        assert entry is not None
        if entry.state != transitions.SUCCEEDED:
            self.settle(error=poll_failed(entry, self.run.instance_id))
            return
        value = self.run.decode(entry.result)
        if self._likes(value):
            self.settle(value)
        elif self.run.replaying or (self.run.cancelling.pending and not self.shielded):
            self._ask_no_more()
        else:
            due_at = after(self.run.now, self.rules.every)
            assert due_at is not None
            start_by_at = after(due_at, self.rules.schedule_to_start)
            self.run.again[self.position] = Again(position=self.position, due_at=due_at, start_by_at=start_by_at)

    def waiting(self) -> str:
        return f"poll of step {self.command.name} at {self.position}"

    def _likes(self, value: Any) -> bool:
        """Of a result that was taken in: it was liked, or the marker says that it was the last one."""
        if self.run.replaying:
            return self.run.marker(self._marker) is None
        return ask(self.run, self.poll.likes, f"until of the {self.waiting()}", value)

    def _ask_no_more(self) -> None:
        """It was claimed when the body was asked to end, and waited for; the cancel is thrown without a value."""
        if not self.run.replaying:
            self.run.markers[self._marker] = "false"
        self.gone = True
        self.run.leaves.pop(self.position, None)

    @property
    def _marker(self) -> str:
        return f"liked:{self.position}"


def poll_failed(entry: Entry, instance_id: str) -> Exception:
    """The error a body gets for a poll that ended without a result it liked."""
    failure = Failure.from_text(entry.failure) if entry.failure else None
    if failure is None or failure.type != type_name(PollTimeout):
        return step_failed(entry, instance_id)
    return PollTimeout(
        f"poll of step {entry.name} at {entry.position}: {failure.message}",
        instance_id=instance_id,
        position=entry.position,
    )
