"""How a run goes on as a new one with an empty journal. Pure.

Rules of this file:
- Yielding ``ContinueCommand`` is like ``return``: what stands in ``finally`` runs, yielded cleanup too, and then the
  run ends CONTINUED. It takes no row: a run that has continued is known by its state.
- Nothing may be left behind: what still runs, and what would have to be taken back if the instance failed later, has no
  place in the next run. Whoever has that to do is told at the yield, and the instance waits BLOCKED for better code.
- A cancel that comes in the same turn wins, and so does the end of the time the whole chain has.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NoReturn

from durable_celery.core import compensation, identity, journal, transitions
from durable_celery.core.commands import Command
from durable_celery.core.decision import Continuation, Decision
from durable_celery.core.journal import Entry, Message
from durable_celery.errors import UsageError

if TYPE_CHECKING:
    from durable_celery.core.run import Run


class Leaving(BaseException):
    """Thrown at the yield of ``continue_as_new``, so that the body leaves as by ``return``."""


class ContinueCommand(Command[NoReturn]):
    """Go on as a new run of a workflow, with these encoded arguments."""

    __slots__ = ("continuation",)
    what = "continue_as_new(...)"

    def __init__(self, continuation: Continuation) -> None:
        super().__init__()
        self.continuation = continuation

    def instead(self) -> str:
        return "outside, start a new instance with .start(...)"


class Continuing:
    """Whether one run is about to go on as another, and as which."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self.next: Continuation | None = None

    def leave(self, command: ContinueCommand, line: str) -> Leaving:
        """The body yielded the command at ``line``; what to throw there. ``UsageError`` if something would be lost."""
        if self.next is not None:
            raise UsageError(
                f"continue_as_new was yielded again at {line}, by a body that caught its own leaving; let "
                "BaseException through, and write return (yield from continue_as_new(...))",
                line=line,
            )
        # What is looked at here changes by itself later, and a cleanup may still run: it was judged when it was new.
        if not self._run.replaying:
            self._refuse_to_lose(line)
        self.next = command.continuation
        return Leaving()

    def takes_back(self, message: Message | None) -> bool:
        """Whether the end of the chain's time, come in the turn in which the run continues, ends it instead."""
        return self.next is not None and message is not None and message.kind == journal.DEADLINE

    def decided(self, decision: Decision) -> Decision:
        """The decision of a run that continues: what is unread was never taken in, whatever turn it came in."""
        assert self.next is not None
        unread = sorted(message.id for kept in self._run.unread.values() for message in kept)
        taken = {pk: order for pk, order in decision.taken_messages.items() if pk not in unread}
        return replace(decision, continuation=replace(self.next, unread=tuple(unread)), taken_messages=taken)

    def _refuse_to_lose(self, line: str) -> None:
        run = self._run
        still = sorted(run.leaves, key=identity.sort_key)
        if still:
            what = ", ".join(f"{position} ({run.leaves[position].waiting()})" for position in still[:5])
            raise UsageError(
                f"continue_as_new at {line} while {len(still)} command{'s' * (len(still) != 1)} of this run "
                f"still run: {what}; join or cancel each handle first",
                line=line,
            )
        owed = [e.position for e in run.entries.values() if compensation.owes(e) and not self._never_ran(e)]
        owed += [o.position for o in run.openings if o.compensation and o.position not in run.withdrawn]
        if owed:
            raise UsageError(
                f"continue_as_new at {line} with compensations that could still fall due: those of "
                f"{', '.join(owed[:5])}; the next run cannot run them. Put the part that may be taken back "
                "into a child workflow, or compensate by hand with Saga",
                line=line,
            )

    def _never_ran(self, entry: Entry) -> bool:
        """Given up in this turn before anybody had it; the commit fails if somebody takes it meanwhile."""
        unclaimed = entry.state not in (*transitions.CLAIMED, *transitions.STEP_FINAL)
        return unclaimed and not entry.unknown_end and entry.position in self._run.withdrawn
