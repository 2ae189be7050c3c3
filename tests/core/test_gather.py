"""Commands side by side: shapes, errors, nesting, and what is recorded."""

from __future__ import annotations

import random
from typing import Any

import pytest

from durable_celery import Signal, SignalTimeout, StepFailed, Workflow, gather, sleep
from durable_celery.core.decision import Closing, Decision
from tests.core.bodies import fails, gathers, plain
from tests.core.driver import Driver, a, b, c, shown


def test_a_gather_opens_its_members_and_gives_a_tuple() -> None:
    run = Driver(gathers(lambda: gather(a(1), b(2))))

    assert shown(run.turn()) == [
        "open gather at 1 SCHEDULED",
        "open step core.a at 1.0 SCHEDULED in 1 joined 1",
        "open step core.b at 1.1 SCHEDULED in 1 joined 1",
        "WAITING gather at 1, 0 of 2 ended, first step core.a at 1.0",
    ]
    run.succeed("1.1", "B")
    assert shown(run.turn()) == ["take 3", "WAITING gather at 1, 1 of 2 ended, first step core.a at 1.0"]
    run.succeed("1.0", "A")
    assert run.turn() == Decision(
        state="COMPLETED",
        value=("A", "B"),
        closings=(Closing(position="1", state="SUCCEEDED", at=run.now),),
        taken_entries={2: 0},
    )


def test_a_named_gather_gives_a_dict_in_the_order_of_its_names() -> None:
    run = Driver(gathers(lambda: gather(parcel=a(), invoice=b()))).play(dice=random.Random(1))

    assert run.value == {"parcel": "1.0", "invoice": "1.1"}
    assert list(run.value) == ["parcel", "invoice"]


def test_a_named_gather_names_its_errors() -> None:
    run = Driver(gathers(lambda: gather(parcel=a(), invoice=b()))).play(fails("1.1"))

    assert run.value == ("1.1", {"parcel": "1.0", "invoice": None}, {"parcel": None, "invoice": "!1.1"})


def test_an_empty_gather_ends_at_once() -> None:
    def body() -> Workflow[Any]:
        nothing: Any = yield from gather()
        values = yield from gather(*[a() for _ in range(0)], sleep(0))
        return nothing, values

    run = Driver(body)

    assert shown(run.turn())[:4] == [
        "open gather at 1 SCHEDULED",
        "open gather at 2 SCHEDULED",
        "open timer at 2.0 SCHEDULED in 2 joined 2",
        "end 1 SUCCEEDED",
    ]
    assert run.turn().value == ((), (None,))


def test_nested_gathers_join_at_the_outermost() -> None:
    run = Driver(gathers(lambda: gather(a(), gather(b(), gather(x=c(), y=c())))))

    assert shown(run.turn())[:7] == [
        "open gather at 1 SCHEDULED",
        "open step core.a at 1.0 SCHEDULED in 1 joined 1",
        "open gather at 1.1 SCHEDULED in 1",
        "open step core.b at 1.1.0 SCHEDULED in 1.1 joined 1",
        "open gather at 1.1.1 SCHEDULED in 1.1",
        "open step core.c at 1.1.1.0 SCHEDULED in 1.1.1 joined 1",
        "open step core.c at 1.1.1.1 SCHEDULED in 1.1.1 joined 1",
    ]
    run.play(dice=random.Random(3))
    assert run.value == ("1.0", ("1.1.0", {"x": "1.1.1.0", "y": "1.1.1.1"}))


def test_members_whose_end_may_matter_alone_join_nothing() -> None:
    for make in (
        lambda: gather(a(), b(), needed=1),
        lambda: gather(a(), b(), tolerate=1),
        lambda: gather(a(), sleep(1), limit=1),
    ):
        openings = Driver(gathers(make)).turn().openings
        assert [opening.join for opening in openings[1:]] == [""] * (len(openings) - 1)
        assert all(opening.group == "1" for opening in openings[1:])


def test_a_gather_within_one_whose_members_matter_alone_joins_nothing() -> None:
    openings = Driver(gathers(lambda: gather(gather(a(), b()), c(), needed=1))).turn().openings

    assert {opening.position: opening.join for opening in openings} == {
        "1": "",
        "1.0": "",
        "1.0.0": "",
        "1.0.1": "",
        "1.1": "",
    }


def test_members_of_every_kind_may_stand_side_by_side() -> None:
    go: Signal[Any] = Signal("go")
    run = Driver(gathers(lambda: gather(a(), sleep(5), go.wait(), go.wait(timeout=2, default="late"), gather())))
    run.turn()
    run.signal("go", "message")
    run.succeed("1.0")
    run.pass_time(10)

    assert run.turn().value == (None, None, "message", "late", ())


def test_a_gather_of_one_gives_a_tuple_of_one() -> None:
    assert Driver(gathers(lambda: gather(a()))).play().value == ("1.0",)


# -- O-18: failures ------------------------------------------------------------------------------------------------


def test_o18_a_failure_is_raised_when_every_member_has_ended() -> None:
    def body() -> Workflow[Any]:
        try:
            yield from gather(a("boom"), b("slow"))
        except StepFailed as error:
            yield from c(error.results, [str(e) if e else None for e in error.errors])
            return error.error_type

    run = Driver(body)
    run.turn()
    run.fail("1.0")
    assert shown(run.turn()) == ["take 2", "WAITING gather at 1, 1 of 2 ended, first step core.b at 1.1"]
    run.succeed("1.1", "slow value")
    decision = run.turn()

    assert decision.closings == (Closing(position="1", state="FAILED", at=run.now),)
    assert decision.openings[0].args == (
        '[[[null,"slow value"],["step core.a at 1.0 failed after 1 attempt: ValueError: no luck at 1.0",null]],{}]'
    )
    run.succeed("2")
    assert run.turn().value == "ValueError"


@pytest.mark.parametrize("seed", range(5))
def test_o18_the_error_is_that_of_the_lowest_position_whoever_failed_first(seed: int) -> None:
    run = Driver(gathers(lambda: gather(a(), b(), c(), a()))).play(fails("1.1", "1.3"), dice=random.Random(seed))

    assert run.value == ("1.1", ["1.0", None, "1.2", None], [None, "!1.1", None, "!1.3"])


def test_the_error_of_a_nested_gather_is_that_of_its_lowest_member() -> None:
    run = Driver(gathers(lambda: gather(a(), gather(b(), c())))).play(fails("1.1.1"))

    assert run.value == ("1.1.1", ["1.0", None], [None, "!1.1.1"])


def test_a_time_out_of_a_wait_among_the_members_is_their_failure() -> None:
    def body() -> Workflow[Any]:
        try:
            yield from gather(a(), Signal("go").wait(timeout=5))
        except SignalTimeout as error:
            return plain(error.__dict__["results"]), plain(error.__dict__["errors"])

    run = Driver(body)
    run.turn()
    run.succeed("1.0", 1)
    run.turn()
    run.pass_time(10)

    assert run.turn().value == ([1, None], [None, "!1.1"])


def test_errors_may_stand_in_their_places() -> None:
    run = Driver(gathers(lambda: gather(a(), b(), c(), return_exceptions=True))).play(fails("1.0", "1.2"))

    assert run.value == ("!1.0", "1.1", "!1.2")
    assert run.states()["1"] == "SUCCEEDED"


def test_a_kept_error_is_the_whole_error() -> None:
    def body() -> Workflow[Any]:
        (error,) = yield from gather(a(), return_exceptions=True)
        assert isinstance(error, StepFailed)
        return error.matches(ValueError), error.step, str(error)

    run = Driver(body).play(fails("1.0"))

    assert run.value == (True, "core.a", "step core.a at 1.0 failed after 1 attempt: ValueError: no luck")


# -- identity ------------------------------------------------------------------------------------------------------


def test_o25_branches_are_told_apart_by_position_in_any_order_of_completion() -> None:
    def body() -> Workflow[Any]:
        pairs = yield from gather(gather(a(1), b(1)), gather(a(2), b(2)), gather(a(3)))
        more = yield from gather(*[c(pair) for pair in pairs])
        last = yield from a(more)
        return pairs, more, last

    outcomes = set()
    for seed in range(200):
        run = Driver(body).play(lambda entry: (entry.position, entry.args), dice=random.Random(seed))
        outcomes.add((repr(run.value), *run.entries))

    assert len(outcomes) == 1
    _, *positions = outcomes.pop()
    assert positions == [
        "1", "1.0", "1.0.0", "1.0.1", "1.1", "1.1.0", "1.1.1", "1.2", "1.2.0", "2", "2.0", "2.1", "2.2", "3",
    ]  # fmt: skip


def test_o28_attempts_take_no_positions() -> None:
    def body() -> Workflow[Any]:
        one = yield from a()
        five = yield from gather(*[b(number) for number in range(5)])
        last = yield from c()
        return one, five, last

    run = Driver(body)
    run.turn()
    run.claim("1")
    run._set(run.entries["1"], state="RETRYING", failure=None)
    run.turn()
    run.play()

    assert run.entries["1"].attempt == 2
    assert run.state == "COMPLETED"
    assert list(run.entries) == ["1", "2", "2.0", "2.1", "2.2", "2.3", "2.4", "3"]
