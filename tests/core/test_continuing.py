"""continue_as_new in the pure core: how a body leaves by it, what beats it, who gets its messages."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from durable_celery import Workflow, continue_as_new, gather, race, sleep
from tests.core.continuing_bodies import counting, goes_on_with, going_on, inc
from tests.core.driver import Driver, a, b


def test_a_run_that_yields_it_ends_and_says_as_what_it_goes_on() -> None:
    run = Driver(going_on, 7)
    decision = goes_on_with(run, 7)
    assert (decision.openings, decision.closings) == ((), ())
    assert not run.open


def test_it_takes_a_bare_yield_too() -> None:
    def body() -> Workflow[None]:
        yield continue_as_new(1, workflow=counting)

    goes_on_with(Driver(body), 1)


def test_what_was_read_before_is_delivered_and_what_was_not_is_left_over() -> None:
    def body() -> Workflow[int]:
        value = yield from inc.wait()
        return (yield from continue_as_new(value, workflow=counting))

    run = Driver(body)
    run.signal("other", "nobody waits for it")
    run.turn()
    run.signal("inc", 4)
    run.signal("inc", 5)
    decision = goes_on_with(run, 4)
    assert decision.delivered_messages == (2,)
    assert decision.taken_messages == {2: 0}, "what comes after the end is not taken in"
    assert decision.continuation is not None
    assert decision.continuation.unread == (1,)


def test_replay_of_a_continued_run_gives_the_same_and_appends_nothing() -> None:
    run = Driver(counting.body, 1)
    run.turn()
    run.signal("inc", 2)
    decision = goes_on_with(run, 3)
    again = run.decide(recorded_only=True)
    assert (again.state, again.continuation) == ("CONTINUED", decision.continuation)
    assert (again.openings, again.closings, again.taken_messages, again.delivered_messages) == ((), (), {}, ())


# -- leaving -----------------------------------------------------------------------------------------------------------


def test_what_stands_in_finally_runs_once_and_yielded_cleanup_comes_first() -> None:
    ran = []

    def body() -> Workflow[int]:
        try:
            return (yield from continue_as_new(1, workflow=counting))
        finally:
            yield from a()
            ran.append("left")

    run = Driver(body, twice=False)
    assert run.turn().state == "WAITING"
    run.succeed("1")
    ran.clear()
    goes_on_with(run, 1)
    assert ran == ["left"]


def test_an_except_clause_for_exceptions_does_not_see_it() -> None:
    def body() -> Workflow[int]:
        try:
            return (yield from continue_as_new(1, workflow=counting))
        except Exception:  # noqa: BLE001
            return 5

    goes_on_with(Driver(body), 1)


def test_a_body_that_swallows_its_leaving_and_returns_goes_on_all_the_same() -> None:
    def body() -> Workflow[int]:
        try:
            return (yield from continue_as_new(1, workflow=counting))
        except BaseException:  # noqa: BLE001
            return 5

    goes_on_with(Driver(body), 1)


def test_a_failing_cleanup_is_the_end_of_the_run() -> None:
    def body() -> Workflow[int]:
        try:
            return (yield from continue_as_new(1, workflow=counting))
        finally:
            yield from a()

    run = Driver(body)
    run.turn()
    run.fail("1")
    decision = run.turn()
    assert (decision.state, decision.continuation) == ("FAILED", None)


# -- a cancel wins -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("before", [True, False])
@pytest.mark.parametrize(("kind", "state"), [("cancel", "CANCELLED"), ("deadline", "FAILED")])
def test_a_request_to_end_in_the_same_turn_wins(kind: str, state: str, before: bool) -> None:
    run = Driver(counting.body, 1)
    run.turn()
    if before:
        run.cancel("enough", kind=kind)
        run.pass_time()
    run.signal("inc", 2)
    if not before:
        run.pass_time()
        run.cancel("enough", kind=kind)
    decision = run.turn()
    assert (decision.state, decision.continuation) == (state, None)


def test_a_cancel_while_its_cleanup_runs_wins() -> None:
    def body() -> Workflow[int]:
        try:
            return (yield from continue_as_new(1, workflow=counting))
        finally:
            yield from sleep(timedelta(days=1))

    run = Driver(body)
    run.turn()
    run.cancel("enough")
    assert run.turn().state == "CANCELLED"


def test_a_body_that_handles_a_cancel_by_going_on_is_cancelled() -> None:
    def body() -> Workflow[None]:
        try:
            yield from sleep(60)
        finally:
            yield from continue_as_new(1, workflow=counting)

    run = Driver(body)
    run.turn()
    run.cancel("enough")
    assert run.turn().state == "CANCELLED"


# -- messages ----------------------------------------------------------------------------------------------------------


def test_what_a_loser_of_a_race_had_taken_is_unread_again() -> None:
    def body() -> Workflow[Any]:
        yield from race(gather(inc.wait(), a()), b())
        yield from b()
        return (yield from continue_as_new(1, workflow=counting))

    run = Driver(body)
    run.turn()
    run.signal("inc", 1)
    assert run.turn().delivered_messages == (1,)
    run.succeed("1.1")
    decision = run.turn()
    assert (decision.delivered_messages, decision.returned_messages) == ((), (1,))
    run.succeed("2")
    decision = goes_on_with(run, 1)
    assert decision.continuation is not None
    assert (decision.returned_messages, decision.continuation.unread) == ((), (1,))


def test_a_message_taken_and_given_back_in_one_turn_was_never_delivered() -> None:
    def body() -> Workflow[Any]:
        winner = yield from race(gather(inc.wait(), a()), b())
        return winner.name

    run = Driver(body)
    run.turn()
    run.signal("inc", 1)
    run.pass_time()
    run.succeed("1.1")
    decision = run.turn()
    assert (decision.state, decision.taken_messages) == ("COMPLETED", {1: 0})
    assert (decision.delivered_messages, decision.returned_messages) == ((), ())
