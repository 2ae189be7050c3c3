"""Random bodies of races, spawned work, conditions and polls, with random outcomes: replay in every turn gives what was
lived, and nothing starts, ends or is taken in twice."""

from __future__ import annotations

import random
import zlib
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st
from hypothesis.errors import UnsatisfiedAssumption

from durable_celery import (
    CancelRequested,
    Handle,
    Signal,
    Winner,
    Workflow,
    gather,
    now,
    poll,
    race,
    shield,
    side_effect,
    sleep,
    spawn,
    uuid4,
    wait_until,
)
from durable_celery.core import journal, transitions
from durable_celery.core.commands import Command
from durable_celery.core.decision import Decision
from durable_celery.core.journal import Entry
from durable_celery.errors import WorkflowError
from tests.core.driver import Driver, a, b

Program = list[tuple[Any, ...]]

pytestmark = pytest.mark.timeout(3600)  # thousands of programs by night
many = settings(max_examples=min(settings().max_examples, 1500))

# -- programs ------------------------------------------------------------------------------------------------------

leaves = st.one_of(
    st.tuples(st.just("step"), st.integers(0, 9)),
    st.tuples(st.just("sleep"), st.integers(0, 5)),
    st.tuples(st.just("signal"), st.sampled_from("pq"), st.one_of(st.none(), st.integers(0, 5))),
    st.tuples(st.just("poll"), st.integers(1, 3)),
    st.tuples(st.just("until"), st.integers(0, 6), st.integers(0, 9)),
    st.tuples(st.just("watch"), st.integers(0, 3)),
)
rules = st.fixed_dictionaries(
    {}, optional={"return_exceptions": st.booleans(), "limit": st.integers(1, 2), "needed": st.just(1)}
)
command = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.tuples(st.just("race"), st.lists(inner, min_size=1, max_size=4)),
        st.tuples(st.just("gather"), st.lists(inner, min_size=1, max_size=3), rules),
        st.tuples(st.just("shield"), inner),
    ),
    max_leaves=6,
)
statement = st.one_of(
    command,
    st.tuples(st.just("race"), st.lists(command, min_size=2, max_size=4)),
    st.tuples(st.just("spawn"), command),
    st.tuples(st.just("stop"), st.integers(0, 3)),
    st.builds(
        lambda name, seconds: ("race", [("gather", [("signal", name, None), ("poll", 3)], {}), ("sleep", seconds)]),
        st.sampled_from("pq"),
        st.integers(1, 5),
    ),
)
programs = st.lists(statement, min_size=2, max_size=8)


class Body:
    """A program as a body; ``seen`` is all it has lived, and what it returns."""

    def __init__(self) -> None:
        self.seen: list[Any] = []
        self.handles: list[Handle[Any]] = []

    def run(self, program: Program) -> Workflow[Any]:
        try:
            for node in program:
                yield from self.tried(node)
        except CancelRequested:
            self.seen.append("cancelled")
            for handle in self.handles[:1]:
                yield from self.tried(("watch", 0))
                yield from handle.cancel()
            self.seen.append((yield from a("cleanup", list(self.seen))))
            raise
        return self.seen

    def tried(self, node: tuple[Any, ...]) -> Workflow[None]:
        try:
            if node[0] == "stop":
                if self.handles:
                    self.seen.append((yield from self.handles[node[1] % len(self.handles)].cancel()))
            elif node[0] == "spawn":
                self.handles.append((yield from spawn(self.command(node[1]))))
            else:
                self.seen.append(named((yield from self.command(node))))
        except WorkflowError as error:
            self.seen.append(f"caught {type(error).__name__} {error}")
        self.seen.append((str(uuid4()), now().isoformat(), side_effect(lambda: len(self.seen))))
        self.seen.append([handle.done for handle in self.handles])

    def command(self, node: tuple[Any, ...]) -> Command[Any]:
        kind, *rest = node
        if kind == "step":
            return (a if rest[0] % 2 else b)(*rest)
        if kind == "sleep":
            return sleep(rest[0])
        if kind == "signal":
            return Signal(rest[0]).wait(timeout=rest[1])
        if kind == "poll":
            return poll(b(), until=lambda answer: answer >= rest[0] * 3, every=1, timeout=500)
        if kind == "until":
            return wait_until(lambda: len(self.seen) > rest[0] * 4, timeout=rest[1])
        if kind == "watch":
            return self.handles[rest[0] % len(self.handles)].join() if self.handles else sleep(0)
        if kind == "shield":
            return shield(self.command(rest[0]))
        if kind == "race":
            return race(*map(self.command, rest[0]))
        return gather(*map(self.command, rest[0]), **rest[1])


def body(program: Program) -> Workflow[Any]:
    return (yield from Body().run(program))


def named(value: Any) -> Any:
    if isinstance(value, Winner):
        return f"winner {value.name}", named(value.value)
    if isinstance(value, tuple):
        return tuple(named(each) for each in value)
    return str(value) if isinstance(value, Exception) else value


# -- worlds --------------------------------------------------------------------------------------------------------


def outcome(entry: Entry, seed: int) -> Any:
    number = zlib.crc32(f"{seed}:{entry.position}:{entry.attempt}".encode())
    return ValueError(f"no luck {number % 97}") if number % 5 == 0 else number % 10


def live(run: Driver, seed: int, *, eager: bool, cancel: bool) -> Driver:
    """Let things happen at random until the body has ended; a turn after each (``eager``) or after some."""
    dice = random.Random(seed)
    run.turn()
    for number in range(600):
        assert run.state != transitions.BLOCKED, run.error
        if not run.open:
            return run
        claimable = [p for p in run.open_steps() if run.entries[p].state in transitions.CLAIMABLE]
        happenings = [("end", position) for position in run.open_steps()] + [("claim", p) for p in claimable]
        what, where = dice.choice([*happenings, ("time", ""), ("signal", dice.choice("pq"))])
        if what == "end":
            run.end([where], lambda entry: outcome(entry, seed))
        elif what == "claim":
            run.claim(where)
        elif what == "signal":
            run.signal(where, dice.randrange(100))
        if cancel and number == seed % 12:
            run.cancel("why")
        run.pass_time(dice.choice([0, 0.5, 2]))
        if run.has_news() and (eager or dice.random() < 0.3):
            run.turn()
    return reject()  # waits for a message of a name that did not come up


FINAL = ("COMPLETED", "CANCELLED")


@many
@given(program=programs, seed=st.integers(0, 10**6), eager=st.booleans(), cancel=st.booleans())
def test_every_replay_gives_what_was_lived(program: Program, seed: int, eager: bool, cancel: bool) -> None:
    run = live(Driver(body, program), seed, eager=eager, cancel=cancel)

    assert run.state in FINAL, run.error
    finished = run.decide(recorded_only=True)
    assert (finished.state, finished.value) == (run.state, run.value)
    appended = replace(finished, state="", value=None, failure=None, waiting="")
    assert appended == Decision(state="")


@many
@given(program=programs, seed=st.integers(0, 10**6))
def test_replay_stands_where_the_last_turn_left_the_body(program: Program, seed: int) -> None:
    run = Driver(body, program)
    dice = random.Random(seed)
    for _ in range(10):
        before = run.turn()
        if not run.open:
            return
        stands = run.decide(recorded_only=True)
        assert (stands.state, stands.waiting, stands.openings) == ("WAITING", before.waiting, ())
        run.end(dice.sample(run.open_steps(), k=min(2, len(run.open_steps()))), lambda entry: outcome(entry, seed))
        run.signal(dice.choice("pq"))
        run.pass_time()


@many
@given(program=programs, seed=st.integers(0, 10**6), cancel=st.booleans())
def test_nothing_happens_twice(program: Program, seed: int, cancel: bool) -> None:
    run = live(Driver(body, program, twice=False), seed, eager=False, cancel=cancel)
    taken = [pk for decision in run.decisions for pk in decision.taken_entries]
    withdrawn = [run.entries[p].id for decision in run.decisions for p in decision.withdrawn]
    opened = [opening.position for decision in run.decisions for opening in decision.openings]
    closed = [closing.position for decision in run.decisions for closing in decision.closings]

    for each in (taken, withdrawn, opened, closed):
        assert max(Counter(each).values(), default=1) == 1
    assert not set(withdrawn) & set(taken)
    assert not {run.entries[p].id for p in closed} & set(withdrawn)


@many
@given(program=programs, seed=st.integers(0, 10**6))
def test_a_message_is_with_one_or_unread_and_none_is_lost(program: Program, seed: int) -> None:
    """What the deliveries say at the end is what the body has got: each message once, unless it was given back."""
    run = live(Driver(body, program, twice=False), seed, eager=False, cancel=False)
    delivered: Counter[int] = Counter()
    for decision in run.decisions:
        delivered.update(decision.delivered_messages)
        delivered.subtract(decision.returned_messages)
    assert set(delivered.values()) <= {0, 1}
    held = [e for e in run.entries.values() if e.kind == journal.SIGNAL and e.state == "SUCCEEDED" and not e.taken_turn]
    assert sum(delivered.values()) <= len(held)


def test_the_programs_are_worth_it() -> None:
    """Each construct comes up, and each way it can end."""
    seen: Counter[str] = Counter()

    @many
    @given(program=programs, seed=st.integers(0, 10**6))
    def count(program: Program, seed: int) -> None:
        try:
            run = live(Driver(body, program, twice=False), seed, eager=True, cancel=False)
        except UnsatisfiedAssumption:
            return
        seen.update({f"{e.kind} {e.state}" for e in run.entries.values()})
        seen.update(f"again {bool(d.again)}" for d in run.decisions)
        seen.update(f"returned {bool(d.returned_messages)}" for d in run.decisions)

    count()
    wanted = ("race SUCCEEDED", "race FAILED", "spawn SUCCEEDED", "spawn CANCELLED", "condition SUCCEEDED",
              "condition CANCELLED", "poll SUCCEEDED", "poll CANCELLED", "again True", "returned True")  # fmt: skip
    assert {name for name in wanted if not seen[name]} == set(), seen
