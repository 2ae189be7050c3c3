from __future__ import annotations

from typing import Any

import pytest

from durable_celery import (
    CompleteLater,
    StepClosed,
    StepFailed,
    WorkflowCancelled,
    WorkflowFailed,
    complete_step,
    current_step,
    fail_step,
    gather,
    heartbeat_step,
    step,
)
from tests.conformance.lives import ran, start
from tests.pump import Pump


@step(name="checklist.ask", start_to_close_timeout=60)
def ask(who: str) -> Any:
    ran.append(current_step().token)
    raise CompleteLater


def asks() -> Any:
    return (yield from ask("ana"))


def tells() -> Any:
    try:
        return (yield from ask.using(heartbeat_timeout=30, schedule_to_close_timeout=600, retry=None)("ana"))
    except StepFailed as error:
        return error.error_type, error.message, error.timed_out


def test_a_callback_is_completed_from_outside(pump: Pump) -> None:
    handle = start(asks)
    pump.drain()
    assert handle.status == "WAITING"
    complete_step(ran[0], {"yes": True})
    pump.drain()
    assert handle.result(timeout=0) == {"yes": True}
    assert len(ran) == 1


def test_a_callback_may_give_nothing(pump: Pump) -> None:
    handle = start(asks)
    pump.drain()
    complete_step(ran[0])
    pump.drain()
    assert handle.result(timeout=0) is None


def test_a_callback_fails_from_outside(pump: Pump) -> None:
    handle = start(tells)
    pump.drain()
    fail_step(ran[0], ValueError("refused"))
    pump.drain()
    assert handle.result(timeout=0) == ("ValueError", "refused", False)
    assert len(ran) == 1


def test_a_callback_may_fail_by_text(pump: Pump) -> None:
    handle = start(asks)
    pump.drain()
    fail_step(ran[0], "the customer hung up")
    pump.drain()
    with pytest.raises(WorkflowFailed, match="the customer hung up"):
        handle.result(timeout=0)


def test_heartbeats_keep_a_callback_alive(pump: Pump) -> None:
    handle = start(tells)
    pump.drain()
    for _ in range(5):
        pump.advance_time(20)
        assert heartbeat_step(ran[0]) is False
    complete_step(ran[0], "at last")
    pump.drain()
    assert handle.result(timeout=0) == "at last"


def test_a_callback_without_heartbeats_times_out(pump: Pump) -> None:
    handle = start(tells)
    pump.advance_time(29)
    assert handle.status == "WAITING"
    pump.advance_time(2)
    assert handle.result(timeout=0)[2] is True


def test_a_callback_has_a_time_out_whatever_its_heartbeats(pump: Pump) -> None:
    handle = start(tells)
    for _ in range(29):
        pump.advance_time(20)
        heartbeat_step(ran[0])
    pump.advance_time(21)
    assert handle.result(timeout=0)[2] is True


def test_a_callback_waits_longer_than_an_attempt_may_run(pump: Pump) -> None:
    handle = start(asks)
    pump.advance_time(days=30)
    assert handle.status == "WAITING"
    complete_step(ran[0], "late")
    pump.drain()
    assert handle.result(timeout=0) == "late"


def test_a_callback_may_be_completed_before_the_step_lets_go(pump: Pump) -> None:
    @step(name="checklist.quick")
    def quick() -> Any:
        complete_step(current_step().token, "first")
        raise CompleteLater

    def body() -> Any:
        return (yield from quick())

    handle = start(body)
    pump.drain()
    assert handle.result(timeout=0) == "first"


def test_a_callback_is_completed_once(pump: Pump) -> None:
    handle = start(asks)
    pump.drain()
    complete_step(ran[0], "first")
    with pytest.raises(StepClosed):
        complete_step(ran[0], "second")
    with pytest.raises(StepClosed):
        fail_step(ran[0], "third")
    pump.drain()
    assert handle.result(timeout=0) == "first"


def test_a_callback_after_the_end_is_kept_and_changes_nothing(pump: Pump) -> None:
    handle = start(asks)
    pump.drain()
    handle.terminate()
    assert heartbeat_step(ran[0]) is True
    complete_step(ran[0], "too late")
    with pytest.raises(StepClosed):
        complete_step(ran[0], "again")
    pump.drain()
    assert handle.status == "TERMINATED"
    assert [entry.result for entry in handle.history()] == ["too late"]


def test_a_callback_that_timed_out_is_refused(pump: Pump) -> None:
    handle = start(tells)
    pump.advance_time(31)
    with pytest.raises(StepClosed):
        complete_step(ran[0], "too late")
    assert handle.result(timeout=0)[2] is True


def test_callbacks_side_by_side_are_completed_in_any_order(pump: Pump) -> None:
    def body() -> Any:
        return (yield from gather(ask("a"), ask("b"), ask("c")))

    handle = start(body)
    pump.drain()
    for place in (2, 0, 1):
        complete_step(ran[place], place)
        pump.drain()
    assert handle.result(timeout=0) == (0, 1, 2)


def test_callbacks_one_after_the_other_have_tokens_of_their_own(pump: Pump) -> None:
    def body() -> Any:
        return (yield from ask("a")), (yield from ask("b"))

    handle = start(body)
    pump.drain()
    complete_step(ran[0], 1)
    pump.drain()
    complete_step(ran[1], 2)
    pump.drain()
    assert handle.result(timeout=0) == (1, 2)


def test_what_asks_for_a_callback_may_fail_and_is_tried_again_with_the_same_token(pump: Pump) -> None:
    @step(name="checklist.asks_badly", retry=2)
    def asks_badly() -> Any:
        ran.append(current_step().token)
        if len(ran) == 1:
            raise ConnectionError("the mail server is away")
        raise CompleteLater

    def body() -> Any:
        return (yield from asks_badly())

    handle = start(body)
    pump.advance_time(60)
    assert len(ran) == 2
    assert len(set(ran)) == 1
    complete_step(ran[0], "answered")
    pump.drain()
    assert handle.result(timeout=0) == "answered"


def test_a_result_that_cannot_be_kept_leaves_the_callback_open(pump: Pump) -> None:
    handle = start(asks)
    pump.drain()
    with pytest.raises(Exception, match="result"):
        complete_step(ran[0], object())
    complete_step(ran[0], "good")
    pump.drain()
    assert handle.result(timeout=0) == "good"


def test_a_cancel_reaches_who_holds_a_callback_and_waits_for_the_end(pump: Pump) -> None:
    handle = start(asks)
    pump.drain()
    handle.cancel()
    pump.drain()
    assert heartbeat_step(ran[0]) is True
    complete_step(ran[0], "done anyway")
    pump.drain()
    with pytest.raises(WorkflowCancelled):
        handle.result(timeout=0)


def test_a_callback_is_completed_by_position_from_the_handle(pump: Pump) -> None:
    handle = start(asks)
    pump.drain()
    handle.complete_step("1", "by hand")
    pump.drain()
    assert handle.result(timeout=0) == "by hand"
