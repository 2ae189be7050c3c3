"""One step over many items: rows apart from the journal, one row in it.

Rules of this file:
- The body sees a map's end as one outcome of its row: every member has ended, or the rest will never start.
- Whether a cancel left some members unstarted is decided by the turn that takes it in, and recorded.
- What it gives the body is built from the same data live and on replay.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from durable_celery.core import identity, journal, transitions
from durable_celery.core.commands import Command, GatherRules, StepTerms
from durable_celery.core.decision import Closing, Opening
from durable_celery.core.journal import Entry, Event
from durable_celery.core.nodes import Node, after, step_failed
from durable_celery.core.summaries import NOT_STARTED, MemberFailure, unpacked
from durable_celery.errors import UsageError

if TYPE_CHECKING:
    from durable_celery.core.commands import Undoing
    from durable_celery.core.run import Run

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Members:
    """What the rows of a map are made of: an encoded call each, or (None) the keys of a ``source`` the store reads."""

    calls: Sequence[str] | None
    source: Any = field(default=None, compare=False)
    terms: StepTerms
    queue: str = ""
    join: str = ""
    limit: int | None = None


class MapCommand(Command[T_co]):
    """Run a step once for each item. ``calls`` are encoded; None: one for each key of ``source``."""

    __slots__ = ("calls", "name", "queue", "rules", "source", "terms")
    what = "map"

    def __init__(
        self, *, name: str, terms: StepTerms, queue: str, rules: GatherRules, calls: Sequence[str] | None, source: Any
    ) -> None:
        self.name = name
        super().__init__()
        self.terms = terms
        self.queue = queue
        self.rules = rules
        self.calls = calls
        self.source = source

    def compensate_with(self: MapCommand[T], undo: Command[Any] | Undoing[T]) -> Command[T]:
        raise UsageError(
            f"{self.describe()} cannot be compensated as one; where each member has its undo, gather commands with "
            "compensate_with instead"
        )

    def describe(self) -> str:
        return f"map of {self.name}"


class MapNode(Node):
    """Members summed up; a leaf, since none of them is looked at alone."""

    __slots__ = ("command", "rules")

    def __init__(self, run: Run, command: MapCommand[Any], position: str, parent: Node | None, **place: Any):
        super().__init__(run, position, parent, **place)
        self.command = command
        self.rules = command.rules

    def open(self) -> None:
        command, calls = self.command, self.command.calls
        recorded = self.run.entries.get(self.position)
        # How many keys there are is known once they are read, with the commit.
        members = len(calls) if calls is not None else recorded.members if recorded is not None else 0
        entry = self._row(journal.MAP, command.name, members)
        if entry is None:
            self.run.openings.append(self._opening(members))
        elif entry.options:
            self.rules = self.rules.as_recorded(entry.options)
        if calls is not None and not calls:
            self.run.close_row(
                Closing(position=self.position, state=transitions.SUCCEEDED, result="[]", at=self.run.now)
            )
            self.settle(())
            return
        self.run.leaves[self.position] = self

    def _opening(self, members: int) -> Opening:
        command, terms = self.command, self.command.terms
        return Opening(
            position=self.position,
            kind=journal.MAP,
            name=command.name,
            state=transitions.SCHEDULED,
            members=members,
            options=self.rules.to_text(),
            group=self.group,
            start_by_at=after(self.run.now, terms.schedule_to_start),
            end_by_at=after(self.run.now, terms.schedule_to_close),
            shielded=self.shielded or self.run.cancelling.message is not None,
            map=Members(
                calls=command.calls,
                source=command.source,
                terms=terms,
                queue=command.queue,
                join=self.join or self.position,
                limit=self.rules.limit,
            ),
        )

    def claimed(self) -> bool:
        entry = self.run.entries.get(self.position)
        found = None if entry is None else entry.summary
        return found is not None and (found.drained or found.count(*transitions.CLAIMED) > 0)

    def halt(self) -> bool:
        """Members that no worker has claimed are given up; those that one has are waited for."""
        key = f"halted:{self.position}"
        if self.run.marker(key) is None:
            if self.run.replaying or not self._unclaimed():
                return False
            self.run.markers[key] = "true"
            self.run.halted.append(self.position)
        self.frozen = True
        return True

    def take(self, event: Event) -> None:
        """Every member has ended, or will not start any more."""
        entry = event.entry
        assert entry is not None
        if self.frozen:
            self.gone = True
            self.run.ignore(self.position)
            self.run.close_row(Closing(position=self.position, state=transitions.CANCELLED, at=self.run.now))
            return
        results, failures = self._outcome(entry)
        if len(failures) > self.rules.tolerate:
            self._fail(entry, results, failures)
        else:
            self._close(entry, transitions.SUCCEEDED)
            self.settle(self._with_errors(results, failures))

    def waiting(self) -> str:
        entry = self.run.entries.get(self.position)
        if entry is None or entry.summary is None:
            return (
                f"map at {self.position}, 0 of {len(self.command.calls):,} ended"
                if self.command.calls
                else (f"map at {self.position}")
            )
        return f"map at {self.position}, {entry.summary.ended:,} of {entry.members:,} ended"

    def _unclaimed(self) -> bool:
        entry = self.run.entries.get(self.position)
        return entry is not None and entry.summary is not None and entry.summary.count(*NOT_STARTED) > 0

    def _outcome(self, entry: Entry) -> tuple[list[Any], dict[int, MemberFailure]]:
        outcomes = entry.summary.outcomes if entry.summary is not None else None
        if outcomes is not None:
            text, failures = f"[{','.join(r or 'null' for r in outcomes.results)}]", dict(outcomes.failures)
        else:
            text, failures = unpacked(entry.result or "[]", entry.failure)
        return list(self.run.decode(text)), failures

    def _close(self, entry: Entry, state: str) -> None:
        """What the members came to goes to the map's own row; what never started is given up."""
        summary = entry.summary
        if self.run.replaying or summary is None or summary.outcomes is None:
            return
        result, failure = summary.outcomes.packed()
        if summary.count(*NOT_STARTED):
            self.run.halted.append(self.position)
        self.run.close_row(
            Closing(position=self.position, state=state, result=result, failure=failure, at=self.run.now)
        )

    def _fail(self, entry: Entry, results: list[Any], failures: dict[int, MemberFailure]) -> None:
        self._close(entry, transitions.FAILED)
        errors = [self._error(i, failures[i]) if i in failures else None for i in range(len(results))]
        error = next(error for error in errors if error is not None)
        error.__dict__.update(results=results, errors=errors)
        self.settle(error=error)

    def _with_errors(self, results: list[Any], failures: dict[int, MemberFailure]) -> tuple[Any, ...]:
        for index, failure in failures.items():
            results[index] = self._error(index, failure)
        return tuple(results)

    def _error(self, index: int, failure: MemberFailure) -> Any:
        position = identity.member(self.position, index)
        row = Entry(
            id=0, position=position, kind=journal.STEP, name=self.command.name, state=transitions.FAILED,
            failure=failure.text or None, attempt=failure.attempt,
        )  # fmt: skip
        return step_failed(row, self.run.instance_id)
