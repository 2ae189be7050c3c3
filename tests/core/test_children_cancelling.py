"""What becomes of the workflows a body yielded when it does not need them any more, or is cancelled."""

from __future__ import annotations

from typing import Any

import pytest

from durable_celery import Workflow, gather, race, shield, sleep
from durable_celery.core.failure import Failure
from tests.core.child_bodies import other
from tests.core.driver import Driver, a, b


def test_enough_results_give_up_the_other_children() -> None:
    def body() -> Workflow[Any]:
        return (yield from gather(other(), other(), needed=1))

    run = Driver(body)
    run.turn()
    run.succeed("1.1", 1)
    decision = run.turn()
    assert decision.value == (None, 1)
    assert dict(decision.told) == {"1.0": "its parent does not need it any more"}


@pytest.mark.parametrize("close", ["cancel", "terminate", "abandon"])
def test_a_child_that_lost_a_race_is_told(close: str) -> None:
    def body() -> Workflow[Any]:
        won = yield from race(mine=other.using(parent_close=close)(), late=sleep(5))
        yield from a()
        return won.name

    run = Driver(body)
    run.turn()
    run.pass_time(5)
    decision = run.turn()
    assert decision.withdrawn == ("1.0",)
    assert dict(decision.told) == {"1.0": "its parent does not need it any more"}
    assert run.entries["1.0"].state == "ABANDONED"
    run.succeed("1.0", 3)  # all the same: kept, not delivered
    run.succeed("2")
    assert run.turn().value == "late"
    assert run.entries["1.0"].taken_turn is None


def test_a_child_that_lost_before_it_was_started_never_is() -> None:
    def body() -> Workflow[Any]:
        yield from a()
        won = yield from race(other(), sleep(0))
        yield from a()
        return won.name

    run = Driver(body)
    run.turn()
    run.succeed("1")
    run.turn()
    run.turn()
    assert run.entries["2.0"].state in ("ABANDONED", "CANCELLED")
    run.succeed("3")
    assert run.turn().value == 1


# -- cancelling --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("close", ["cancel", "terminate"])
def test_a_cancel_is_handed_down_and_waits_for_the_child(close: str) -> None:
    def body() -> Workflow[Any]:
        try:
            yield from other.using(parent_close=close)()
        finally:
            yield from b()

    run = Driver(body)
    run.turn()
    run.cancel("enough")
    decision = run.turn()
    assert dict(decision.told) == {"1": "its parent was asked to end: enough"}
    assert decision.withdrawn == ()
    assert list(run.entries) == ["1"]
    run.end_child("1", Failure(type="Cancelled", cancelled=True), state="CANCELLED")
    assert run.turn().state == "WAITING"
    run.succeed("2")
    assert run.turn().state == "CANCELLED"


def test_a_child_that_succeeds_all_the_same_gives_its_value_first() -> None:
    seen = []

    def body() -> Workflow[Any]:
        seen.append((yield from other()))
        yield from a()

    run = Driver(body)
    run.turn()
    run.cancel()
    run.turn()
    run.succeed("1", 5)
    assert run.turn().state == "CANCELLED"
    assert set(seen) == {5}
    assert list(run.entries) == ["1"]


def test_one_that_is_to_be_abandoned_is_left_alone_and_not_waited_for() -> None:
    def body() -> Workflow[Any]:
        yield from other.using(parent_close="abandon")()

    run = Driver(body)
    run.turn()
    run.cancel()
    decision = run.turn()
    assert decision.state == "CANCELLED"
    assert dict(decision.told) == {}


def test_a_shielded_one_is_not_told() -> None:
    def body() -> Workflow[Any]:
        yield from shield(other())
        yield from a()

    run = Driver(body)
    run.turn()
    run.cancel()
    decision = run.turn()
    assert (decision.state, dict(decision.told)) == ("WAITING", {})
    run.succeed("1", 5)
    assert run.turn().state == "CANCELLED"


def test_a_second_cancel_tells_nobody() -> None:
    def body() -> Workflow[Any]:
        yield from other()

    run = Driver(body)
    run.turn()
    run.cancel()
    run.turn()
    run.cancel()
    assert dict(run.turn().told) == {}


def test_a_cancel_gives_up_what_waits_beside_a_child_and_waits_for_the_child() -> None:
    def body() -> Workflow[Any]:
        yield from gather(other(), a(), sleep(50))

    run = Driver(body)
    run.turn()
    run.cancel()
    decision = run.turn()
    assert set(decision.withdrawn) == {"1.1", "1.2"}
    assert list(decision.told) == ["1.0"]
    assert decision.markers == {"cancel:1": '["1.0"]'}
    run.end_child("1.0", Failure(type="Cancelled", cancelled=True), state="CANCELLED")
    assert run.turn().state == "CANCELLED"


def test_a_child_of_the_cleanup_runs() -> None:
    def body() -> Workflow[Any]:
        try:
            yield from sleep(50)
        finally:
            yield from other()

    run = Driver(body)
    run.turn()
    run.cancel()
    (opening,) = run.turn().openings
    assert (opening.kind, opening.shielded) == ("child", True)
    run.succeed("2", 1)
    assert run.turn().state == "CANCELLED"
