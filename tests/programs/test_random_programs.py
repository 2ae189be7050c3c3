"""Random programs over the whole language, under doubled, dropped and reordered messages and killed processes, every
turn decided twice: the same outcome and the same journal as of a straight run."""

from __future__ import annotations

import statistics
from collections import Counter
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from durable_celery.engine import turns
from tests.programs import body
from tests.programs.grammar import FEATURES, Program, features, programs
from tests.programs.outside import Outside, outcome, rows, unfinished
from tests.pump import Pump, clear_tables

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.timeout(7200)]

PROGRAMS = {50: 40, 200: 300}  # by the examples of the profile; 2,000 by night
POINTS = (
    "claim.before", "claim.after_commit", "body.before", "body.after", "record.before", "record.after",
    "turn.before_body", "turn.before_commit", "turn.after_commit", "publish.before", "publish.after",
)  # fmt: skip

lengths: list[int] = []
seen: Counter[str] = Counter()
faults: Counter[str] = Counter()


class Perturbed(RuleBasedStateMachine):
    """One program: run straight, then again while the rules below do what a bad day does."""

    @initialize(program=programs)
    def start(self, program: Program) -> None:
        self.expected = straight(program)
        clear_tables()
        body.effects.clear()
        self.kills = 0
        self.outside = Outside()
        self.pump = Pump().__enter__()
        self.handle = body.interpreted.using(id="program").start(program, [])

    @rule(index=st.integers(0, 5))
    def deliver(self, index: int) -> None:
        if ready := self.pump.ready():
            self.pump.deliver(ready[index % len(ready)])

    @rule(index=st.integers(0, 5))
    def drop(self, index: int) -> None:
        if self.pump.queue:
            self.pump.queue.pop(index % len(self.pump.queue))
            faults["dropped"] += 1

    @rule(index=st.integers(0, 5))
    def double(self, index: int) -> None:
        if self.pump.queue:
            self.pump.queue.append(self.pump.queue[index % len(self.pump.queue)])
            faults["doubled"] += 1

    @precondition(lambda self: self.kills < 2)  # a step may be killed twice; the third death is its end
    @rule(point=st.sampled_from(POINTS), nth=st.integers(1, 4), proven=st.booleans())
    def kill(self, point: str, nth: int, proven: bool) -> None:
        self.kills += 1
        self.pump.kill_at(point, nth, proven=proven)
        faults["killed"] += 1

    @rule(seconds=st.integers(1, 8))
    def pass_time(self, seconds: int) -> None:
        self.pump.now += timedelta(seconds=seconds)
        self.pump.tick()

    @rule()
    def settle(self) -> None:
        self.pump.finish()
        self.outside.answer()

    def teardown(self) -> None:
        if not hasattr(self, "pump"):
            return
        try:
            to_the_end(self.pump, self.outside)
            assert unfinished() == []
            assert outcome() == self.expected
        finally:
            self.pump.__exit__(None, None, None)
            clear_tables()


def straight(program: Program) -> dict[str, Any]:
    """The outcome on a good day."""
    clear_tables()
    body.effects.clear()
    with Pump() as pump:
        body.interpreted.using(id="program").start(program, [])
        to_the_end(pump, Outside())
        assert unfinished() == []
        assert set(body.effects.values()) <= {1, 2, 3}
        lengths.append(rows())
        for feature in features(program):
            seen[feature] += 1
        return outcome()


def to_the_end(pump: Pump, outside: Outside) -> None:
    for _ in range(200):
        pump.finish()
        if not outside.answer():
            return
    raise AssertionError("the program asks on and on")


@pytest.fixture
def decided_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every turn replays its journal from nothing twice, and must decide the same."""
    decide = turns._decide

    def twice(*given: Any) -> Any:
        first, second = decide(*given), decide(*given)
        assert first == second
        return first

    monkeypatch.setattr(turns, "_decide", twice)


@pytest.mark.usefixtures("decided_twice")
def test_random_programs_end_alike_with_and_without_faults() -> None:
    assert settings.default is not None
    number = PROGRAMS.get(settings.default.max_examples, 2000)
    if connection.vendor != "sqlite":
        number //= 15  # the language is the same there; what differs is the store's, and has tests of its own
    for tally in (lengths, seen, faults):
        tally.clear()
    Perturbed.TestCase.settings = settings(settings.default, max_examples=number, stateful_step_count=12)
    Perturbed.TestCase().runTest()
    print(
        f"\n{len(lengths)} programs, commands: median {statistics.median(lengths)}, most {max(lengths)}; {dict(faults)}"
    )
    for feature in FEATURES:
        print(f"{feature:>16} {100 * seen[feature] / len(lengths):5.1f} % {'#' * (40 * seen[feature] // len(lengths))}")
    assert len(lengths) >= number
    assert statistics.median(lengths) >= 8
    if number >= 300:  # fewer are too few to judge by
        assert {feature for feature in FEATURES if seen[feature] < 0.05 * len(lengths)} == set()
