from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from durable_celery import (
    CancelRequested,
    CompleteLater,
    RetryPolicy,
    Saga,
    Signal,
    StepFailed,
    Workflow,
    WorkflowCancelled,
    WorkflowFailed,
    WorkflowTerminated,
    complete_step,
    current_step,
    gather,
    get_handle,
    map_step,
    poll,
    race,
    shield,
    sleep,
    spawn,
    step,
    wait_until,
    workflow,
)
from tests.conformance.lives import fail, ran, run, say, start
from tests.pump import Pump

word = Signal("checklist.cancel_word")


@step(name="checklist.hand_over")
def hand_over() -> Any:
    ran.append(current_step().token)
    raise CompleteLater


@step(name="checklist.refused", retry=RetryPolicy(maximum_attempts=0, initial_interval=3600))
def refused(number: int = 0) -> None:
    raise OSError("down")


@workflow(name="checklist.sleeper")
def sleeper() -> Workflow[None]:
    yield from sleep(days=9)


WAITS: dict[str, Callable[[], Any]] = {
    "a sleep": lambda: sleep(days=9),
    "a signal": lambda: word.wait(),
    "a condition": lambda: wait_until(lambda: False),
    "a retry": lambda: refused(),
    "a poll": lambda: poll(say("no"), until=lambda answer: answer == "yes", every=3600),
    "a child": lambda: sleeper(),
    "a gather": lambda: gather(sleep(days=9), word.wait()),
    "a race": lambda: race(sleep(days=9), word.wait()),
    "a map": lambda: map_step(refused, [1, 2]),
}


@pytest.mark.parametrize("wait", WAITS.values(), ids=WAITS)
def test_a_cancel_ends_a_wait_at_once(pump: Pump, wait: Callable[[], Any]) -> None:
    def body() -> Any:
        try:
            yield from wait()
        except CancelRequested as request:
            ran.append(request.reason)
            raise

    handle = start(body)
    pump.drain()
    assert handle.cancel("enough") == "requested"
    pump.drain()
    with pytest.raises(WorkflowCancelled) as caught:
        handle.result(timeout=0)
    assert caught.value.reason == "enough"
    assert ran[-1] == "enough"
    assert {entry.state for entry in handle.history()} == {"CANCELLED"}


def test_a_cancel_of_a_joined_handle(pump: Pump) -> None:
    def body() -> Any:
        yield from (yield from spawn(sleep(days=9)))

    handle = start(body)
    pump.drain()
    handle.cancel()
    pump.drain()
    assert handle.status == "CANCELLED"


def test_a_cancel_while_a_step_runs_waits_for_its_value_and_comes_at_the_next_yield(pump: Pump) -> None:
    def body() -> Any:
        ran.append((yield from hand_over()))
        yield from say("never")

    handle = start(body)
    pump.drain()
    handle.cancel()
    pump.drain()
    assert handle.status == "WAITING"
    complete_step(ran.pop(), "value")
    pump.drain()
    assert (handle.status, set(ran)) == ("CANCELLED", {"value"})


@step(name="checklist.cancel_me")
def cancel_me(item: bool = True) -> str:
    assert get_handle(current_step().instance_id).cancel() == "requested"
    return "done"


ENDED_SINCE: dict[str, Callable[[], Any]] = {
    "a step": lambda: cancel_me(),
    "a gather": lambda: gather(cancel_me()),
    "a race": lambda: race(cancel_me(), sleep(days=1)),
    "a poll": lambda: poll(cancel_me(), until=lambda answer: answer == "done"),
    "a map": lambda: map_step(cancel_me, [True]),
}


@pytest.mark.parametrize("made", ENDED_SINCE.values(), ids=ENDED_SINCE)
def test_a_step_that_ends_before_a_turn_sees_the_cancel_gives_its_value(pump: Pump, made: Callable[[], Any]) -> None:
    def body() -> Any:
        ran.append((yield from made()))
        yield from say("not any more")

    handle = start(body)
    pump.drain()
    assert (handle.status, "not any more" in ran) == ("CANCELLED", False)
    assert "done" in repr(ran)  # as often as the body was replayed


def test_a_cancel_before_the_first_turn_runs_nothing(pump: Pump) -> None:
    def body() -> Any:
        yield from say("never")

    handle = start(body)
    handle.cancel()
    pump.drain()
    assert (handle.status, ran) == ("CANCELLED", [])


def test_cleanup_in_finally_runs_once(pump: Pump) -> None:
    def body() -> Any:
        try:
            yield from sleep(days=9)
        finally:
            yield from say("cleanup")
            yield from sleep(60)
            yield from say("more cleanup")

    handle = start(body)
    pump.drain()
    handle.cancel()
    pump.finish()
    assert (handle.status, ran) == ("CANCELLED", ["cleanup", "more cleanup"])


def test_except_exception_does_not_swallow_a_cancel(pump: Pump) -> None:
    def body() -> Any:
        try:
            yield from sleep(days=9)
        except Exception:
            yield from say("never")

    handle = start(body)
    pump.drain()
    handle.cancel()
    pump.drain()
    assert (handle.status, ran) == ("CANCELLED", [])


def test_a_body_that_catches_a_cancel_and_returns_is_cancelled_all_the_same(pump: Pump) -> None:
    def body() -> Any:
        try:
            yield from sleep(days=9)
        except CancelRequested:
            yield from say("goodbye")
        return "ignored"

    handle = start(body)
    pump.drain()
    handle.cancel()
    pump.drain()
    assert (handle.status, ran) == ("CANCELLED", ["goodbye"])


def test_a_body_that_swallows_a_cancel_gets_it_again_and_is_closed(pump: Pump) -> None:
    def body() -> Any:
        while True:
            try:
                yield from sleep(days=9)
            except CancelRequested:
                pass

    handle = start(body)
    pump.drain()
    handle.cancel()
    pump.drain()
    assert handle.status == "CANCELLED"


def test_a_shielded_step_runs_to_its_end(pump: Pump) -> None:
    def body() -> Any:
        ran.append((yield from shield(gather(say("a"), sleep(60)))))
        yield from say("never")

    handle = start(body)
    pump.advance_time(30)
    handle.cancel()
    pump.advance_time(10)
    assert handle.status == "WAITING"
    pump.advance_time(60)
    assert (handle.status, ran[:2], "never" in ran) == ("CANCELLED", ["a", ("a", None)], False)


def test_a_second_cancel_changes_nothing(pump: Pump) -> None:
    def body() -> Any:
        try:
            yield from sleep(days=9)
        finally:
            yield from sleep(60)
            yield from say("cleanup")

    handle = start(body)
    pump.drain()
    handle.cancel("first")
    pump.advance_time(30)
    handle.cancel("second")
    pump.finish()
    with pytest.raises(WorkflowCancelled) as caught:
        handle.result(timeout=0)
    assert (caught.value.reason, ran) == ("first", ["cleanup"])


def test_a_cancel_that_comes_too_late_says_so(pump: Pump) -> None:
    def body() -> Any:
        yield from say("done")

    handle = start(body)
    pump.drain()
    assert (handle.cancel(), handle.terminate(), handle.status) == ("COMPLETED", "COMPLETED", "COMPLETED")


def test_terminate_runs_nothing_more(pump: Pump) -> None:
    def body() -> Any:
        try:
            yield from say("charged").compensate_with(say("never"))
            yield from sleep(days=9)
        finally:
            yield from say("never")

    handle = start(body)
    pump.drain()
    assert handle.terminate("gone") == "requested"
    pump.drain()
    with pytest.raises(WorkflowTerminated) as caught:
        handle.result(timeout=0)
    assert (caught.value.reason, ran) == ("gone", ["charged"])


def test_the_execution_time_out_ends_the_workflow_after_its_cleanup(pump: Pump) -> None:
    def body() -> Any:
        try:
            yield from sleep(days=9)
        finally:
            yield from say("cleanup")

    with pytest.raises(WorkflowFailed) as caught:
        run(pump, body, execution_timeout=60)
    assert caught.value.matches("durable_celery.errors.WorkflowTimedOut")
    assert ran == ["cleanup"]


def test_compensations_run_newest_first(pump: Pump) -> None:
    def body() -> Any:
        yield from say("charge").compensate_with(say("refund"))
        yield from say("reserve").compensate_with(say("release"))
        yield from fail("broken")

    with pytest.raises(WorkflowFailed, match="broken"):
        run(pump, body)
    assert ran == ["charge", "reserve", "broken", "release", "refund"]


def test_a_compensation_is_called_with_the_result(pump: Pump) -> None:
    @step(name="checklist.undo")
    def undo(receipt: Any) -> None:
        ran.append(("undo", receipt))

    def body() -> Any:
        yield from say("r-1").compensate_with(undo)
        yield from sleep(days=9)

    handle = start(body)
    pump.drain()
    handle.cancel()
    pump.drain()
    assert (handle.status, ran) == ("CANCELLED", ["r-1", ("undo", "r-1")])


def test_a_failing_compensation_stops_no_other_and_hides_no_error(pump: Pump) -> None:
    def body() -> Any:
        yield from say("a").compensate_with(say("undo a"))
        yield from say("b").compensate_with(fail("undo b"))
        yield from fail("broken")

    with pytest.raises(WorkflowFailed, match="broken"):
        run(pump, body)
    assert ran == ["a", "b", "broken", "undo b", "undo a"]


def test_a_saga_is_compensated_by_hand(pump: Pump) -> None:
    def body() -> Any:
        saga = Saga()
        for name in ("a", "b"):
            yield from say(name)
            saga.add(say(f"undo {name}"))
        try:
            yield from fail("broken")
        except StepFailed:
            yield from saga.compensate()
        return "undone"

    assert run(pump, body) == "undone"
    assert ran == ["a", "b", "broken", "undo b", "undo a"]


def test_a_paused_workflow_goes_on_where_it_was(pump: Pump) -> None:
    def body() -> Any:
        yield from sleep(60)
        yield from say("after")

    handle = start(body)
    pump.drain()
    handle.pause()
    pump.advance_time(600)
    assert (handle.status, ran) == ("PAUSED", [])
    handle.resume()
    pump.drain()
    assert (handle.status, ran) == ("COMPLETED", ["after"])
