"""O-26, O-27: a body that does not fit its journal is BLOCKED, loudly, and nothing else is decided."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from durable_celery import Signal, Workflow, gather, sleep
from tests.core.bodies import blocked, line_of
from tests.core.driver import Driver, a, b, c, shown

# -- O-26, O-27: a body that does not fit its journal --------------------------------------------------------------


class Flip:
    """A body that looks at something replay does not know of."""

    def __init__(self, *bodies: Callable[[], Workflow[Any]]) -> None:
        self.bodies = list(bodies)
        self.version = 0

    def __call__(self) -> Workflow[Any]:
        return (yield from self.bodies[self.version]())


def first() -> Workflow[None]:
    yield from a()
    yield from b()
    yield from c()


def reordered() -> Workflow[None]:
    yield from a()
    yield from c()
    yield from b()


def other_kind() -> Workflow[None]:
    yield from a()
    yield from sleep(3)


def shorter() -> Workflow[None]:
    yield from a()


def failing() -> Workflow[None]:
    yield from a()
    yield from gather(b(), limit=0)


def flip(before: Any, after: Any) -> Driver:
    """A run at its second step whose code is exchanged."""
    flipping = Flip(before, after)

    def body() -> Workflow[Any]:
        return (yield from flipping())

    run = Driver(body)
    run.turn()
    run.end(run.open_steps(), lambda entry: 1)
    run.turn()
    run.end(run.open_steps(), lambda entry: 2)
    flipping.version = 1
    return run


@pytest.mark.parametrize(
    ("after", "recorded", "requested"),
    [
        (reordered, "recorded is step core.b", "the body now asks for step core.c (reordered, line "),
        (other_kind, "recorded is step core.b", "the body now asks for timer (other_kind, line "),
        (shorter, "recorded is more of this run", "the body now asks for its end by a return (at its end)"),
    ],
)
def test_o26_a_mismatch_names_both_sides_and_the_line(after: Any, recorded: str, requested: str) -> None:
    text = blocked(flip(first, after))

    assert "the code does not fit the journal at position 2" in text
    assert recorded in text
    assert requested in text


def test_o26_the_kind_of_error_is_non_determinism_with_both_sides_as_data() -> None:
    failure = flip(first, reordered).turn().failure

    assert failure is not None
    assert failure.type == "durable_celery.errors.NonDeterminism"
    line = line_of(reordered, "yield from c()")
    assert failure.attributes == {
        "position": "2",
        "recorded": "step core.b",
        "requested": "step core.c",
        "instance_id": "00000000-0000-7000-8000-000000000001",
        "line": line,
        "recorded_row": {"position": "2", "kind": "step", "name": "core.b", "members": 0, "state": "SUCCEEDED"},
        "requested_command": {"kind": "step", "name": "core.c", "members": 0},
        "before": [{"position": "1", "kind": "step", "name": "core.a", "members": 0, "state": "SUCCEEDED"}],
        "after": [],
        "moment": {"turn": 2, "order": 0},
    }


def test_o26_the_rows_recorded_around_the_position_are_named() -> None:
    def before() -> Workflow[None]:
        for _ in range(4):
            yield from a()
        yield from gather(b(), b())
        for _ in range(4):
            yield from c()

    def after() -> Workflow[None]:
        for _ in range(4):
            yield from a()
        yield from gather(b(), a())
        yield from c()

    flipping = Flip(before, after)

    def body() -> Workflow[Any]:
        return (yield from flipping())

    run = Driver(body)
    run.turn()
    for _ in range(6):
        run.end(run.open_steps(), lambda entry: 1)
        run.turn()
    flipping.version = 1
    failure = run.turn().failure

    assert failure is not None
    sides = failure.attributes
    assert (sides["position"], sides["requested_command"]["name"]) == ("5.1", "core.a")
    assert [row["position"] for row in sides["before"]] == ["4", "5", "5.0"]
    assert [(row["position"], row["state"]) for row in sides["after"]] == [("6", "SUCCEEDED"), ("7", "SCHEDULED")]


def test_o26_a_body_that_ends_too_soon_asks_for_nothing() -> None:
    failure = flip(first, shorter).turn().failure

    assert failure is not None
    assert failure.attributes["requested_command"] == {}
    assert failure.attributes["recorded_row"]["name"] == "core.b"


def test_a_body_that_goes_on_longer_than_recorded_does_not_fit() -> None:
    def waits() -> Workflow[None]:
        yield from a()
        yield from Signal("go").wait()

    def goes_on() -> Workflow[None]:
        yield from a()
        yield from Signal("go").wait(timeout=0)

    run = flip(waits, goes_on)  # another time-out is no mismatch: the recorded one stays in force
    run.signal("go")

    assert run.turn().state == "COMPLETED"


@pytest.mark.parametrize(
    ("before", "after", "says"),
    [
        (
            lambda: gather(a(), b()),
            lambda: gather(a(), b(), c()),
            "is gather of 2 members, the body now asks for gather",
        ),
        (lambda: gather(a(), b()), lambda: gather(b(), a()), "at position 2.0: recorded is step core.a"),
        (lambda: gather(a(), b()), lambda: a(), "at position 2: recorded is gather of 2 members"),
        (
            lambda: gather(a(), gather(b())),
            lambda: gather(a(), gather(b(), c())),
            "at position 2.1: recorded is gather",
        ),
        (
            lambda: Signal("x").wait(),
            lambda: Signal("y").wait(),
            "recorded is signal x, the body now asks for signal y",
        ),
    ],
    ids=["count", "order", "kind", "nested", "signal"],
)
def test_kind_name_and_number_of_members_must_match(before: Any, after: Any, says: str) -> None:
    def body_of(make: Any) -> Any:
        def body() -> Workflow[None]:
            yield from a()
            yield from make()
            yield from c()

        return body

    run = flip(body_of(before), body_of(after))
    run.signal("x")

    assert says in blocked(run)


def test_other_arguments_and_options_fit() -> None:
    def before() -> Workflow[None]:
        yield from a()
        yield from b(1).compensate_with(c(1))

    def after() -> Workflow[None]:
        yield from a()
        yield from b.using(queue="other", retry=None)(2, "more")

    assert flip(before, after).turn().state == "COMPLETED"


def test_an_outcome_the_body_does_not_wait_for_does_not_fit() -> None:
    run = flip(first, first)
    run.entries["2.5"] = replace(run.entries["2"], id=99, position="2.5")

    assert "at position 2.5: recorded is step core.b, the body now asks for nothing: it does not" in blocked(run)


def test_o26_a_choice_by_dice_is_found_as_soon_as_it_flips() -> None:
    outcomes = []
    for seed in range(20):
        dice = random.Random(seed)

        def body(dice: random.Random = dice) -> Workflow[None]:
            yield from a() if dice.random() < 0.5 else b()
            yield from c()

        run = Driver(body)
        run.apply(run.decide())
        recorded = run.entries["1"].name
        run.succeed("1")
        decision = run.decide()
        outcomes.append(decision.state)
        if decision.state == "BLOCKED":
            assert f"recorded is step {recorded}, the body now asks for step core." in decision.waiting
        else:
            assert shown(decision)[0] == "open step core.c at 2 SCHEDULED"

    assert set(outcomes) == {"BLOCKED", "WAITING"}


def test_o27_a_mismatch_changes_nothing_however_often_it_is_looked_at() -> None:
    run = flip(first, reordered)
    before = run.journal()

    for _ in range(20):
        blocked(run)

    assert run.journal() == before
    assert run.turns == 2


def test_o26_fixed_code_goes_on_from_where_it_was() -> None:
    flipping = Flip(first, reordered)

    def body() -> Workflow[Any]:
        return (yield from flipping())

    run = Driver(body)
    run.turn()
    run.succeed("1")
    run.turn()
    run.succeed("2")
    flipping.version = 1
    blocked(run)
    flipping.version = 0

    assert shown(run.turn()) == ["open step core.c at 3 SCHEDULED", "take 2", "WAITING step core.c at 3"]
