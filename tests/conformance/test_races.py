from __future__ import annotations

from typing import Any

import pytest

from durable_celery import (
    CompleteLater,
    Signal,
    StepFailed,
    Winner,
    WorkflowFailed,
    complete_step,
    current_step,
    gather,
    race,
    sleep,
    spawn,
    step,
)
from tests.conformance.lives import fail, ran, run, say, start
from tests.pump import Pump

paid = Signal("checklist.paid")


@step(name="checklist.ask_in_race")
def ask() -> Any:
    ran.append(current_step().token)
    raise CompleteLater


def test_the_first_to_settle_wins_by_its_index(pump: Pump) -> None:
    def body() -> Any:
        return (yield from race(sleep(60), say("fast")))

    assert run(pump, body) == Winner(1, "fast")


def test_the_winner_has_its_name(pump: Pump) -> None:
    def body() -> Any:
        won = yield from race(paid=paid.wait(), late=sleep(60))
        return won.name, won.value

    assert run(pump, body) == ("late", None)


def test_a_message_wins_over_a_clock_that_is_later(pump: Pump) -> None:
    def body() -> Any:
        return (yield from race(paid=paid.wait(), late=sleep(60)))

    handle = start(body)
    pump.advance_time(59)
    paid.send(handle, 100)
    pump.finish()
    assert handle.result(timeout=0) == Winner("paid", 100)


def test_a_failure_that_settles_first_is_raised(pump: Pump) -> None:
    def body() -> Any:
        yield from race(fail("broken"), sleep(60))

    with pytest.raises(WorkflowFailed, match="broken"):
        run(pump, body)


def test_a_loser_nobody_has_claimed_never_runs(pump: Pump) -> None:
    def body() -> Any:
        won = yield from race(say("first"), say("second"))
        return won.name

    assert run(pump, body) == 0
    assert ran == ["first"]


def test_a_claimed_loser_is_told_and_its_end_is_kept_but_not_delivered(pump: Pump) -> None:
    def body() -> Any:
        yield from race(ask(), sleep(60))
        return (yield from say("went on"))

    handle = start(body)
    pump.finish()
    assert handle.result(timeout=0) == "went on"
    assert {entry.position: entry.state for entry in handle.history()}["1.0"] == "ABANDONED"
    complete_step(ran[0], "too late")
    assert {entry.position: entry.result for entry in handle.history()}["1.0"] == "too late"


def test_a_message_a_loser_had_taken_is_delivered_to_the_next_wait(pump: Pump) -> None:
    def body() -> Any:
        yield from race(gather(paid.wait(), sleep(days=1)), sleep(60))
        return (yield from paid.wait())

    handle = start(body)
    pump.drain()
    paid.send(handle, 7)
    pump.finish()
    assert handle.result(timeout=0) == 7


def test_a_handle_that_loses_goes_on(pump: Pump) -> None:
    def body() -> Any:
        work = yield from spawn(sleep(100))
        won = yield from race(work=work, late=sleep(60))
        yield from work
        return won.name, work.done

    assert run(pump, body) == ("late", True)


def test_races_inside_races_and_gathers(pump: Pump) -> None:
    def body() -> Any:
        return (yield from gather(race(sleep(9), race(a=sleep(5), b=say("b"))), say("c")))

    assert run(pump, body) == (Winner(1, Winner("b", "b")), "c")


def test_a_race_of_one(pump: Pump) -> None:
    def body() -> Any:
        return (yield from race(say("alone")))

    assert run(pump, body) == Winner(0, "alone")


def test_a_race_of_none_is_refused(pump: Pump) -> None:
    def body() -> Any:
        yield from race()

    handle = start(body)
    pump.drain()
    assert (handle.status, "race" in handle.waiting_for) == ("BLOCKED", True)


def test_an_error_of_a_race_can_be_caught(pump: Pump) -> None:
    def body() -> Any:
        try:
            yield from race(fail(), sleep(60))
        except StepFailed as error:
            return error.position

    assert run(pump, body) == "1.0"
