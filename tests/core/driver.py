"""An instance in memory: it takes turns by `replay` and applies each decision as the store would.

The body gets a fresh generator in every turn, and each turn is decided twice: nothing may depend on what a process
remembers. Outcomes are given by the test; time stands still until it moves it.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from types import SimpleNamespace
from typing import Any

from durable_celery import codec, step
from durable_celery.core import journal, replay, transitions
from durable_celery.core.commands import Command, GatherRules
from durable_celery.core.decision import Closing, Decision, Opening
from durable_celery.core.failure import Failure, failure_of, lost, timed_out
from durable_celery.core.handlers import Answer
from durable_celery.core.journal import CANCEL, UPDATE, Entry, Journal, Message
from durable_celery.finals import in_finally

BEGIN = datetime(2026, 11, 1, 8, 30, tzinfo=timezone.utc)
INSTANCE = "00000000-0000-7000-8000-000000000001"
UNCLAIMED = (transitions.HELD, transitions.SCHEDULED, transitions.RETRYING)


@step(name="core.a")
def a(*args: Any, **kwargs: Any) -> Any: ...


@step(name="core.b")
def b(*args: Any, **kwargs: Any) -> Any: ...


@step(name="core.c")
def c(*args: Any, **kwargs: Any) -> Any: ...


@step(name="core.undo")
def undo(result: Any) -> None: ...


class Driver:
    """One instance of ``body``. ``turn()`` decides and applies; a BLOCKED decision changes nothing but the state."""

    def __init__(
        self,
        body: Callable[..., Any],
        *args: Any,
        fails_on: tuple[type[BaseException], ...] = (),
        adapt: Callable[[Any], Command[Any] | None] = lambda yielded: None,
        now: datetime = BEGIN,
        twice: bool = True,
    ) -> None:
        self.body = body
        self.args = args
        self.fails_on = fails_on
        self.adapt = adapt
        self.now = now
        self.twice = twice
        self.state = transitions.PENDING
        self.turns = 0
        self.started_at: datetime | None = None
        self.value: Any = None
        self.error = ""
        self.entries: dict[str, Entry] = {}
        self.messages: list[Message] = []
        self.markers: dict[str, str] = {}
        self.decisions: list[Decision] = []
        self.answers: dict[int, Answer] = {}  # of updates accepted, by the id of the message
        self.rejected: dict[int, Answer] = {}
        self.told: dict[str, str] = {}  # children asked to end, and why
        self._ids = 0
        self._messages = 0

    # -- turns -----------------------------------------------------------------------------------------------------

    def turn(self) -> Decision:
        """Take one turn; deciding it twice must give the same."""
        decision = self.decide()
        if self.twice:
            assert self.decide() == decision
        self.apply(decision)
        self.decisions.append(decision)
        return decision

    def decide(self, *, recorded_only: bool = False, **options: Any) -> Decision:
        """What the next turn would decide; nothing changes."""
        return replay.replay(
            self.body,
            self.args,
            {},
            self.journal(),
            turn=self.turns + 1,
            now=self.now,
            started_at=self.started_at,
            decode=codec.decode,
            encode=lambda value, root: codec.encode(value, root=root),
            adapt=self.adapt,
            fails_on=self.fails_on,
            in_finally=in_finally,
            recorded_only=recorded_only,
            info=SimpleNamespace(name="core.workflow"),
            **options,
        )

    def journal(self) -> Journal:
        """What is stored, entries in the order they were inserted."""
        return Journal(
            instance_id=INSTANCE,
            entries=tuple(self.entries.values()),
            messages=tuple(self.messages),
            markers=dict(self.markers),
        )

    @property
    def open(self) -> bool:
        """Whether the body has not ended."""
        return self.state not in transitions.FINAL_STATES

    def has_news(self) -> bool:
        """Whether there is anything that a turn would take in."""
        return any(event.turn == -1 for event in journal.events(self.journal(), turn=-1, now=self.now))

    def apply(self, decision: Decision) -> None:
        """Write a decision as the store would."""
        self.state = decision.state
        self.error = decision.failure.brief if decision.failure else ""
        if decision.state == transitions.BLOCKED:
            return
        self.turns += 1
        self.started_at = self.started_at or self.now
        self.value = decision.value
        self.markers.update(decision.markers)
        self.told.update(decision.told)
        ended = decision.state != transitions.WAITING
        closings = {closing.position: closing for closing in decision.closings}
        for opening in decision.openings:
            dropped = opening.position in decision.withdrawn or ended
            assert opening.position not in self.entries
            self.entries[opening.position] = self._entry(opening, closings.get(opening.position), dropped)
        for again in decision.again:
            entry = self.entries[again.position]
            assert (entry.kind, entry.state, entry.taken_turn) == (journal.POLL, transitions.SUCCEEDED, None)
            self._set(entry, state=transitions.RETRYING, due_at=again.due_at, finished_at=None)
        for entry in list(self.entries.values()):
            if entry.id in decision.taken_entries:
                order = decision.taken_entries[entry.id]
                self._set(entry, taken_turn=self.turns, taken_order=order, taken_at=self.now)
            if entry.position in closings:
                closing = closings[entry.position]
                text = closing.failure.to_text() if closing.failure else None
                self._set(entry, state=closing.state, result=closing.result, failure=text, finished_at=closing.at)
            elif entry.position in decision.withdrawn or (ended and entry.state in transitions.STEP_OPEN):
                self._abandon(self.entries[entry.position])
        self.messages = [
            replace(m, taken_turn=self.turns, taken_order=decision.taken_messages[m.id], taken_at=self.now)
            if m.id in decision.taken_messages
            else m
            for m in self.messages
            if m.id not in decision.rejected
        ]
        self.rejected.update({pk: Answer.from_text(text) for pk, text in decision.rejected.items()})
        for pk, text in decision.answers.items():
            assert pk not in self.answers
            self.answers[pk] = Answer.from_text(text)
            self.messages = [replace(m, answered=True) if m.id == pk else m for m in self.messages]

    def _entry(self, opening: Opening, closing: Closing | None, dropped: bool) -> Entry:
        self._ids += 1
        entry = Entry(
            id=self._ids,
            position=opening.position,
            kind=opening.kind,
            name=opening.name,
            state=opening.state,
            members=opening.members,
            args=opening.args,
            options=opening.options if opening.kind in journal.WITH_OPTIONS else "",
            attempt=int(opening.kind == journal.CHILD and not dropped),
            due_at=opening.due_at,
            compensation=opening.compensation,
        )
        if closing is None and dropped:
            return replace(entry, state=transitions.CANCELLED, finished_at=self.now, abandoned=True)
        return entry

    def _abandon(self, entry: Entry) -> None:
        if entry.taken_turn is not None or entry.abandoned:
            return
        state, finished_at = entry.state, entry.finished_at
        if state in UNCLAIMED:
            state, finished_at = transitions.CANCELLED, self.now
        elif state in (transitions.RUNNING, transitions.EXTERNAL):
            state = transitions.ABANDONED
        self._set(entry, state=state, finished_at=finished_at, abandoned=True)

    def _set(self, entry: Entry, **changes: Any) -> None:
        self.entries[entry.position] = replace(self.entries[entry.position], **changes)

    # -- what happens outside --------------------------------------------------------------------------------------

    def pass_time(self, seconds: float = 1) -> None:
        """Move the clock."""
        self.now += timedelta(seconds=seconds)

    def claim(self, position: str) -> None:
        """A worker takes the row at ``position``; one more attempt."""
        entry = self.entries[position]
        assert entry.state in transitions.CLAIMABLE, f"{position} is {entry.state}"
        self._set(entry, state=transitions.RUNNING, attempt=entry.attempt + 1)

    def succeed(self, position: str, value: Any = None) -> None:
        """The step at ``position`` ends with a value, now; one second passes."""
        self._finish(position, state=transitions.SUCCEEDED, result=codec.encode(value))

    def fail(
        self, position: str, error: BaseException | None = None, *, time_out: bool = False, loss: bool = False
    ) -> None:
        """The step at ``position`` ends with an error, now; one second passes."""
        failure = failure_of(error or ValueError(f"no luck at {position}"))
        if time_out or loss:
            failure = timed_out("too slow") if time_out else lost("the process is gone")
        self._finish(position, state=transitions.FAILED, failure=failure.to_text(), unknown_end=time_out or loss)

    def end_child(self, position: str, failure: Failure | None, *, state: str = transitions.FAILED) -> None:
        """The child at ``position`` ends without a result, now; one second passes."""
        self._finish(position, state=state, failure=failure.to_text() if failure else None)

    def signal(self, name: str, payload: Any = None, *, at: datetime | None = None, kind: str = "signal") -> int:
        """A message comes in, now or at another time; its id."""
        self._messages += 1
        self.messages.append(
            Message(
                id=self._messages, kind=kind, name=name, payload=codec.encode(payload), stored_at=at or self.now,
            )
        )  # fmt: skip
        return self._messages

    def update(self, name: str, *args: Any) -> int:
        """An update comes in, now; the id of its message."""
        return self.signal(name, list(args), kind=UPDATE)

    def cancel(self, reason: str = "", *, kind: str = CANCEL) -> None:
        """Somebody asks the run to end, now."""
        self.signal("", reason, kind=kind)

    def open_steps(self) -> list[str]:
        """Positions of steps that a worker could take or has taken, in order."""
        states = (transitions.SCHEDULED, transitions.RETRYING, transitions.RUNNING)
        return [e.position for e in self.entries.values() if e.kind in journal.STEPS and e.state in states]

    def states(self) -> dict[str, str]:
        """The state of each row."""
        return {position: entry.state for position, entry in self.entries.items()}

    def _finish(self, position: str, **changes: Any) -> None:
        if self.entries[position].state in transitions.CLAIMABLE:
            self.claim(position)
        entry = self.entries[position]
        assert entry.state in transitions.CLAIMED, f"{position} is {entry.state}"
        self._set(entry, finished_at=self.now, **changes)
        self._promote(position)
        self.pass_time()

    def _promote(self, position: str) -> None:
        """The end of a member lets the next held one go, unless failures stop the gather."""
        group = position.rpartition(".")[0]
        members = [e for e in self.entries.values() if group and e.position.rpartition(".")[0] == group]
        held = next((e for e in members if e.state == transitions.HELD), None)
        if held is None:
            return
        rules = GatherRules().as_recorded(self.entries[group].options)
        failed = sum(e.state == transitions.FAILED for e in members)
        if rules.return_exceptions or rules.needed is not None or failed <= rules.tolerate:
            self._set(held, state=transitions.SCHEDULED)

    # -- whole runs ------------------------------------------------------------------------------------------------

    def play(
        self,
        ends: Callable[[Entry], Any] = lambda entry: entry.position,
        *,
        dice: random.Random | None = None,
        limit: int = 500,
    ) -> Driver:
        """Take turns to the end. ``ends`` gives each step's value, or its exception; ``dice`` shuffle who ends when."""
        self.turn()
        for _ in range(limit):
            if not self.open or self.state == transitions.BLOCKED:
                return self
            waiting = self.open_steps()
            if waiting:
                self.end(waiting if dice is None else [dice.choice(waiting)], ends)
            else:
                self.now = max(self.now, self.next_due())
            if self.has_news():
                self.turn()
        raise AssertionError(f"not ended after {limit} turns: {self.states()}")

    def end(self, positions: Iterable[str], ends: Callable[[Entry], Any]) -> None:
        """End these steps, in order."""
        for position in positions:
            outcome = ends(self.entries[position])
            if isinstance(outcome, BaseException):
                self.fail(position, outcome)
            else:
                self.succeed(position, outcome)

    def next_due(self) -> datetime:
        """When the next timer or time-out falls due."""
        due = [e.due_at for e in self.entries.values() if e.state == transitions.SCHEDULED and e.due_at is not None]
        assert due, f"nothing will ever happen: {self.states()}"
        return min(due)


def shown(decision: Decision) -> list[str]:
    """A decision as lines: what it opens, ends, gives up, takes in, records, and where the body stands."""
    lines = [
        f"open {' '.join(x for x in (o.kind, o.name, 'at', o.position, o.state) if x)}"
        + (f" in {o.group}" if o.group else "")
        + (f" joined {o.join}" if o.join else "")
        for o in decision.openings
    ]
    lines += [f"again {each.position} at {each.due_at:%H:%M:%S}" for each in decision.again]
    lines += [f"end {c.position} {c.state}" + (f" {c.result}" if c.result else "") for c in decision.closings]
    lines += [f"give up {position}" for position in decision.withdrawn]
    taken = [(order, f"take {pk}") for pk, order in decision.taken_entries.items()]
    taken += [(order, f"take message {pk}") for pk, order in decision.taken_messages.items()]
    lines += [line for _, line in sorted(taken)]
    lines += [f"mark {key} {value}" for key, value in decision.markers.items()]
    if decision.state == transitions.WAITING:
        lines.append(f"WAITING {decision.waiting}")
    elif decision.state == transitions.COMPLETED:
        lines.append(f"COMPLETED {decision.value!r}")
    else:
        lines.append(f"{decision.state} {decision.failure.brief if decision.failure else ''}")
    return lines
