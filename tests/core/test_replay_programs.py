"""Random bodies with random outcomes: replay in every turn gives what was lived, and order does not matter where it
should not."""

from __future__ import annotations

import random
import time
import zlib
from typing import Any

import pytest
from hypothesis import given, reject
from hypothesis import strategies as st

from durable_celery import Signal, SignalTimeout, StepFailed, Workflow, gather, now, side_effect, sleep, uuid4
from durable_celery.core import transitions
from durable_celery.core.commands import Command
from durable_celery.core.decision import Decision
from durable_celery.core.journal import Entry
from tests.core.driver import Driver, a, b

Program = list[tuple[Any, ...]]

pytestmark = pytest.mark.timeout(3600)  # thousands of programs by night

# -- programs ------------------------------------------------------------------------------------------------------

steps = st.tuples(st.just("step"), st.integers(0, 9))
sleeps = st.tuples(st.just("sleep"), st.integers(0, 5))
signals = st.tuples(st.just("signal"), st.sampled_from("pqr"), st.one_of(st.none(), st.integers(0, 5)))
rules = st.fixed_dictionaries(
    {},
    optional={
        "return_exceptions": st.booleans(),
        "limit": st.integers(1, 3),
        "tolerate": st.integers(0, 2),
        "needed": st.just(1),
    },
)
patient_rules = st.fixed_dictionaries({}, optional={"return_exceptions": st.just(True)})


def commands(leaves: Any, rules: Any) -> Any:
    return st.recursive(
        leaves,
        lambda inner: st.tuples(st.just("gather"), st.lists(inner, min_size=1, max_size=4), rules),
        max_leaves=6,
    )


def programs(command: Any) -> Any:
    blocks = st.lists(command, min_size=1, max_size=3)
    tried = st.tuples(st.just("try"), blocks, blocks)
    return st.lists(st.one_of(command, tried), min_size=1, max_size=5)


any_program = programs(commands(st.one_of(steps, sleeps, signals), rules))
patient_program = programs(commands(st.one_of(steps, sleeps), patient_rules))  # whose result no order changes


def command_of(node: tuple[Any, ...]) -> Command[Any]:
    kind, *rest = node
    if kind == "step":
        return (a if rest[0] % 2 else b)(*rest)
    if kind == "sleep":
        return sleep(rest[0])
    if kind == "signal":
        return Signal(rest[0]).wait(timeout=rest[1])
    members, given_rules = rest
    return gather(*map(command_of, members), **given_rules)


def run_block(block: Program, seen: list[Any], *, labels: bool) -> Workflow[None]:
    for node in block:
        if node[0] == "try":
            try:
                yield from run_block(node[1], seen, labels=labels)
            except (StepFailed, SignalTimeout) as error:
                seen.append(f"caught {error}")
                yield from run_block(node[2], seen, labels=labels)
            continue
        seen.append(named((yield from command_of(node))))
        if labels:
            seen.append((str(uuid4()), now().isoformat(), side_effect(lambda: len(seen))))


def body(program: Program, labels: bool) -> Workflow[Any]:
    seen: list[Any] = []
    try:
        yield from run_block(program, seen, labels=labels)
    except (StepFailed, SignalTimeout) as error:
        seen.append(f"ended by {error}")
    return seen


def named(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(named(each) for each in value)
    return str(value) if isinstance(value, Exception) else value


# -- worlds --------------------------------------------------------------------------------------------------------


def outcome(entry: Entry, seed: int) -> Any:
    """What becomes of a step; by its position, so that it is the same in every order."""
    number = zlib.crc32(f"{seed}:{entry.position}".encode())
    return ValueError(f"no luck {number % 97}") if number % 4 == 0 else number % 10


def live(run: Driver, seed: int, *, eager: bool) -> Driver:
    """Let things happen at random until the body has ended; a turn after each (``eager``) or after some."""
    dice = random.Random(seed)
    run.turn()
    for _ in range(400):
        assert run.state != transitions.BLOCKED, run.error
        if not run.open:
            return run
        happenings = [("end", position) for position in run.open_steps()]
        what, where = dice.choice([*happenings, ("time", ""), ("signal", dice.choice("pqr"))])
        if what == "end":
            run.end([where], lambda entry: outcome(entry, seed))
        elif what == "signal":
            run.signal(where, dice.randrange(100))
        run.pass_time(dice.choice([0, 0.5, 2]))
        if run.has_news() and (eager or dice.random() < 0.3):
            run.turn()
    return reject()  # waits for a message of a name that did not come up


@given(program=any_program, seed=st.integers(0, 10**6), eager=st.booleans())
def test_every_replay_gives_what_was_lived(program: Program, seed: int, eager: bool) -> None:
    run = live(Driver(body, program, True), seed, eager=eager)

    assert run.state == "COMPLETED", run.error
    finished = run.decide(recorded_only=True)
    assert finished == Decision(state="COMPLETED", value=run.value)


@given(program=any_program, seed=st.integers(0, 10**6))
def test_replay_stands_where_the_last_turn_left_the_body(program: Program, seed: int) -> None:
    run = Driver(body, program, True)
    dice = random.Random(seed)
    for _ in range(8):
        before = run.turn()
        if not run.open:
            return
        assert run.decide(recorded_only=True) == Decision(state="WAITING", waiting=before.waiting)
        run.end(dice.sample(run.open_steps(), k=min(2, len(run.open_steps()))), lambda entry: outcome(entry, seed))
        run.signal(dice.choice("pqr"))
        run.pass_time()


@given(program=patient_program, seed=st.integers(0, 10**6), other=st.integers(0, 10**6))
def test_neither_order_nor_the_cut_into_turns_changes_a_patient_body(program: Program, seed: int, other: int) -> None:
    def ends(entry: Entry) -> Any:
        return outcome(entry, seed)

    by_one = Driver(body, program, False).play(ends, dice=random.Random(seed))
    shuffled = Driver(body, program, False).play(ends, dice=random.Random(other))
    together = Driver(body, program, False).play(ends)

    assert by_one.value == shuffled.value == together.value
    assert sorted(by_one.entries) == sorted(shuffled.entries) == sorted(together.entries)


@given(program=any_program, seed=st.integers(0, 10**6))
def test_no_outcome_is_taken_in_twice_and_none_of_a_row_given_up(program: Program, seed: int) -> None:
    run = live(Driver(body, program, False, twice=False), seed, eager=False)
    taken = [pk for decision in run.decisions for pk in decision.taken_entries]
    withdrawn = {run.entries[p].id for decision in run.decisions for p in decision.withdrawn}
    opened = [opening.position for decision in run.decisions for opening in decision.openings]
    closed = [closing.position for decision in run.decisions for closing in decision.closings]

    assert len(taken) == len(set(taken))
    assert not withdrawn & set(taken)
    assert len(opened) == len(set(opened))
    assert len(closed) == len(set(closed))


# -- size ----------------------------------------------------------------------------------------------------------


@pytest.mark.nightly
@pytest.mark.parametrize("given_rules", [{}, {"limit": 10}, {"needed": 10}, {"return_exceptions": True}], ids=str)
def test_a_gather_of_five_thousand_replays_in_linear_time(given_rules: dict[str, Any]) -> None:
    assert replay_seconds(5000, given_rules) < 8 * replay_seconds(1000, given_rules)


def replay_seconds(members: int, given_rules: dict[str, Any]) -> float:
    """Processor time of the turn that takes in everything, at best of five."""

    def wide() -> Workflow[int]:
        return len((yield from gather(*[a(number) for number in range(members)], **given_rules)))

    run = Driver(wide, twice=False)
    run.turn()
    for entry in list(run.entries.values()):
        if entry.kind == "step":
            run._set(entry, state=transitions.SUCCEEDED, attempt=1, finished_at=run.now, result="1")
    spent = []
    for _ in range(5):
        begun = time.process_time()
        assert run.decide().value == members
        spent.append(time.process_time() - begun)
    return min(spent)
