from __future__ import annotations

from typing import Any

import pytest

from durable_celery import (
    PollTimeout,
    RetryPolicy,
    Signal,
    StepFailed,
    WorkflowCancelled,
    WorkflowFailed,
    current_step,
    now,
    poll,
    spawn,
    step,
    update,
    wait_until,
)
from tests.conformance.lives import fail, ran, run, say, seconds, start
from tests.pump import BEGIN, Pump

item = Signal("checklist.item")


@step(name="checklist.status", retry=None)
def status(good_at: int) -> str:
    ran.append(seconds_of_step())
    return "paid" if len(ran) >= good_at else "open"


def seconds_of_step() -> int:
    return current_step().attempt


def is_paid(answer: str) -> bool:
    return answer == "paid"


def test_a_condition_that_holds_already_waits_for_nothing(pump: Pump) -> None:
    def body() -> Any:
        return (yield from wait_until(lambda: True)), (now() - BEGIN).total_seconds()

    assert run(pump, body) == (True, 0)


def test_a_condition_is_met_by_signals(pump: Pump) -> None:
    def body() -> Any:
        basket: list[str] = []
        item.on(basket.append)
        met = yield from wait_until(lambda: len(basket) >= 2)
        return met, basket

    handle = start(body)
    pump.drain()
    item.send(handle, "a")
    pump.drain()
    assert handle.status == "WAITING"
    item.send(handle, "b")
    pump.drain()
    assert handle.result(timeout=0) == (True, ["a", "b"])


def test_a_condition_is_met_by_an_update(pump: Pump) -> None:
    def body() -> Any:
        state = {"limit": 0}
        update("raise", lambda by: state.update(limit=state["limit"] + by))
        yield from wait_until(lambda: state["limit"] > 10)
        return state["limit"]

    handle = start(body)
    pump.drain()
    handle.update("raise", 5, wait=False)
    pump.drain()
    handle.update("raise", 6, wait=False)
    pump.drain()
    assert handle.result(timeout=0) == 11


def test_a_condition_is_met_by_work_beside_the_body(pump: Pump) -> None:
    def body() -> Any:
        work = yield from spawn(say("done"))
        yield from wait_until(lambda: work.done)
        return (yield from work)

    assert run(pump, body) == "done"


def test_a_condition_not_met_in_time_gives_false(pump: Pump) -> None:
    def body() -> Any:
        return (yield from wait_until(lambda: False, timeout=60)), (now() - BEGIN).total_seconds()

    assert run(pump, body) == (False, 60)


def test_an_error_in_a_condition_is_raised_at_the_yield(pump: Pump) -> None:
    def body() -> Any:
        try:
            yield from wait_until(lambda: 1 / 0 > 0)
        except ZeroDivisionError:
            return (yield from say("caught"))

    assert run(pump, body) == "caught"


def test_a_condition_may_not_build_commands(pump: Pump) -> None:
    def body() -> Any:
        yield from wait_until(lambda: say("never") is None)

    handle = start(body)
    pump.drain()
    assert handle.status == "BLOCKED"
    assert "UsageError" in handle.waiting_for
    assert ran == []


def test_a_condition_is_cancelled(pump: Pump) -> None:
    def body() -> Any:
        yield from wait_until(lambda: False)

    handle = start(body)
    pump.drain()
    handle.cancel()
    pump.drain()
    with pytest.raises(WorkflowCancelled):
        handle.result(timeout=0)


def test_a_poll_asks_until_the_answer_is_liked(pump: Pump) -> None:
    def body() -> Any:
        return (yield from poll(status(3), until=is_paid, every=60))

    handle = start(body)
    pump.finish()
    assert handle.result(timeout=0) == "paid"
    assert (ran, seconds(pump)) == ([1, 2, 3], 120)
    assert len(handle.history()) == 1


def test_a_poll_whose_first_answer_is_liked_asks_once(pump: Pump) -> None:
    def body() -> Any:
        return (yield from poll(status(1), until=is_paid))

    assert run(pump, body) == "paid"
    assert (ran, seconds(pump)) == ([1], 0)


def test_a_poll_times_out(pump: Pump) -> None:
    def body() -> Any:
        try:
            yield from poll(status(99), until=is_paid, every=60, timeout=150)
        except PollTimeout as error:
            return error.position

    assert run(pump, body) == "1"
    assert ran == [1, 2, 3]


def test_a_poll_time_out_nobody_catches_fails_the_workflow(pump: Pump) -> None:
    def body() -> Any:
        yield from poll(status(99), until=is_paid, timeout=1)

    with pytest.raises(WorkflowFailed) as caught:
        run(pump, body)
    assert caught.value.matches(PollTimeout)


def test_a_poll_retries_a_failing_look(pump: Pump) -> None:
    @step(name="checklist.shaky", retry=RetryPolicy(maximum_attempts=2, initial_interval=1))
    def shaky() -> str:
        ran.append(current_step().attempt)
        if len(ran) % 2:
            raise OSError("no line")
        return "paid" if len(ran) > 3 else "open"

    def body() -> Any:
        return (yield from poll(shaky(), until=is_paid, every=60))

    assert run(pump, body) == "paid"
    assert len(ran) == 4


def test_a_poll_whose_look_fails_for_good_raises_step_failed(pump: Pump) -> None:
    def body() -> Any:
        try:
            yield from poll(fail(), until=is_paid)
        except StepFailed as error:
            return error.matches(ValueError)

    assert run(pump, body) is True


def test_an_error_in_the_rule_of_a_poll_blocks_and_loses_nothing(pump: Pump) -> None:
    def body() -> Any:
        return (yield from poll(status(1), until=lambda answer: getattr(answer, "no_such_" + "thing")))

    handle = start(body)
    pump.drain()
    assert handle.status == "BLOCKED"
    assert "no_such_thing" in handle.waiting_for
    assert ran == [1]
