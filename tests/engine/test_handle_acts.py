"""What a handle does to its instance, and steps that are ended by their position or token."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest
from asgiref.sync import async_to_sync
from django.db import transaction

import durable_celery
from durable_celery import (
    CompleteLater,
    InstanceClosed,
    InstanceNotFound,
    NotRetryable,
    NotSerializable,
    RetryPolicy,
    Signal,
    StepClosed,
    StepFailed,
    Workflow,
    WorkflowCancelled,
    WorkflowHandle,
    WorkflowTerminated,
    complete_step,
    current_step,
    gather,
    get_handle,
    step,
    workflow,
)
from durable_celery.core import transitions as t
from durable_celery.errors import BadValue
from tests.pump import Pump

pytestmark = pytest.mark.engine

approved = Signal("handle_acts.approved")
tokens: list[str] = []
moods: list[bool] = []


@step(name="tests.handle_acts.hand_over", retry=RetryPolicy(maximum_attempts=3))
def hand_over(number: int) -> str:
    tokens.append(current_step().token)
    raise CompleteLater


@step(name="tests.handle_acts.moody", retry=None)
def moody() -> str:
    if moods.pop():
        return "fine"
    raise OSError("not now")


def waits() -> Workflow[Any]:
    return (yield from approved.wait())


def hands_over() -> Workflow[Any]:
    try:
        return (yield from gather(hand_over(1), hand_over(2), limit=1))
    except StepFailed as error:
        return error.message


def is_moody() -> Workflow[str]:
    return (yield from moody())


waiting = workflow(name="tests.handle_acts.waiting")(waits)
outside = workflow(name="tests.handle_acts.outside")(hands_over)
whim = workflow(name="tests.handle_acts.whim")(is_moody)


def started(pump: Pump, definition: Any = waiting) -> WorkflowHandle[Any]:
    tokens.clear()
    handle: WorkflowHandle[Any] = definition.start()
    pump.drain()
    return handle


def test_a_cancel_is_requested_once_and_later_names_the_end_it_came_too_late_for(pump: Pump) -> None:
    handle = started(pump)
    assert (handle.cancel("sold out"), handle.cancel("again")) == ("requested", "requested")
    pump.finish()
    assert handle.cancel() == t.CANCELLED
    with pytest.raises(WorkflowCancelled) as ended:
        handle.result(timeout=0)
    assert ended.value.reason == "sold out"


def test_a_terminate_ends_it_at_once(pump: Pump) -> None:
    handle = started(pump)
    assert handle.terminate("old") == "requested"
    assert handle.status == t.TERMINATED
    assert handle.terminate() == t.TERMINATED
    with pytest.raises(WorkflowTerminated) as ended:
        handle.result(timeout=0)
    assert ended.value.reason == "old"


def test_a_paused_instance_goes_on_when_it_is_resumed(pump: Pump) -> None:
    handle = started(pump)
    handle.pause("stocktaking")
    handle.signal("handle_acts.approved", "yes")
    pump.advance_time(hours=1)
    assert handle.status == t.PAUSED
    handle.resume()
    pump.finish()
    assert handle.result(timeout=0) == "yes"
    for act in (handle.pause, handle.resume):
        with pytest.raises(InstanceClosed):
            act()


def test_a_retry_starts_the_failed_step_afresh(pump: Pump) -> None:
    moods[:] = [True, False]
    handle = started(pump, whim)
    assert handle.status == t.FAILED
    handle.retry()
    pump.finish()
    assert handle.result(timeout=0) == "fine"
    assert handle.history()[0].attempts == 2
    with pytest.raises(NotRetryable):
        handle.retry()


def test_a_retry_sends_the_failed_step_at_once_without_waiting_for_the_tick(pump: Pump) -> None:
    moods[:] = [True, False]
    handle = started(pump, whim)
    handle.retry()
    pump.drain()
    assert handle.result(timeout=0) == "fine"


@pytest.mark.parametrize("timeout", ["5", float("nan"), True])
def test_a_timeout_that_is_no_duration_is_refused(pump: Pump, timeout: Any) -> None:
    handle = started(pump)
    with pytest.raises(BadValue, match="timeout"):
        handle.result(timeout=timeout)
    with pytest.raises(TimeoutError):
        handle.result(timeout=-1)  # a deadline that is over


def test_a_handle_is_found_by_the_task_id_of_the_message_that_started_it(pump: Pump) -> None:
    handle = waiting.apply_async((), task_id="webhook-77")
    assert get_handle("webhook-77").id == handle.id
    with pytest.raises(InstanceNotFound, match="webhook-78"):
        get_handle("webhook-78")
    with pytest.raises(InstanceNotFound):
        get_handle(object())  # type: ignore[arg-type]


def test_what_a_rolled_back_transaction_did_is_not_done(pump: Pump) -> None:
    handle = started(pump)
    with transaction.atomic():
        handle.cancel("no")
        handle.pause("no")
        transaction.set_rollback(True)
    sent = len(pump.sent)
    pump.finish()
    assert handle.status == t.WAITING
    assert len(pump.sent) == sent


@pytest.mark.parametrize("reason", [None, 7, "a\0b", "\ud800"])
@pytest.mark.parametrize("act", ["cancel", "terminate", "pause"])
def test_a_reason_that_no_database_takes_is_refused(db: None, act: str, reason: Any) -> None:
    handle = waiting.start()
    with pytest.raises(BadValue, match="reason"):
        getattr(handle, act)(reason)
    assert handle.status == t.PENDING


@pytest.mark.parametrize("act", ["cancel", "terminate", "pause", "resume", "retry", "complete_step"])
def test_an_instance_that_is_not_there_is_named(db: None, act: str) -> None:
    handle: WorkflowHandle[Any] = WorkflowHandle(str(uuid4()))
    with pytest.raises(InstanceNotFound, match=handle.id):
        getattr(handle, act)(*(["1"] if act == "complete_step" else []))


def test_steps_are_ended_by_position_and_the_first_end_wins(pump: Pump) -> None:
    handle = started(pump, outside)
    with pytest.raises(BadValue, match=r"is the step tests\.handle_acts\.hand_over, HELD"):
        handle.complete_step("1.1", "two")
    handle.complete_step("1.0", "one")
    for end in (handle.complete_step, handle.fail_step):
        with pytest.raises(StepClosed, match="SUCCEEDED already"):
            end("1.0", "late")
    pump.drain()
    complete_step(tokens[1], "two")
    pump.finish()
    assert handle.result(timeout=0) == ("one", "two")


def test_a_step_failed_by_position_gets_no_further_attempt(pump: Pump) -> None:
    handle = started(pump, outside)
    handle.fail_step("1.0", "the box is broken")
    pump.finish()
    assert handle.result(timeout=0) == "the box is broken"
    assert len(tokens) == 1


def test_a_result_that_cannot_be_stored_leaves_the_step_open(pump: Pump) -> None:
    handle = started(pump, outside)
    with pytest.raises(NotSerializable):
        handle.complete_step("1.0", object())
    assert handle.history()[1].state == t.EXTERNAL


@pytest.mark.parametrize("position", ["7", "", "1~"])
def test_a_position_where_nothing_is_is_named(pump: Pump, position: str) -> None:
    handle = started(pump, outside)
    with pytest.raises(BadValue, match="has nothing at position"):
        handle.complete_step(position)


def test_each_act_has_a_twin_for_async_code(pump: Pump) -> None:
    handle = started(pump, outside)

    async def act() -> list[Any]:
        await handle.apause("a")
        await handle.aresume()
        await handle.acomplete_step("1.0", "one")
        with pytest.raises(StepClosed):
            await durable_celery.acomplete_step(tokens[0], "other")
        with pytest.raises(NotRetryable):
            await handle.aretry()
        return [await handle.acancel(), await handle.aterminate(), await handle.astatus()]

    assert async_to_sync(act)() == ["requested", "requested", t.TERMINATED]
    assert get_handle(handle.id).status == t.TERMINATED


@pytest.mark.parametrize("position", [1, None, 2.5])
def test_a_position_that_is_no_text_is_refused(pump: Pump, position: Any) -> None:
    handle = started(pump, outside)
    with pytest.raises(BadValue, match=r"expected one such as '3' or '2.0.1'"):
        handle.complete_step(position, "parcel")
    with pytest.raises(BadValue, match=r"expected one such as '3' or '2.0.1'"):
        handle.fail_step(position, "lost")
