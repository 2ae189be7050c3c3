from __future__ import annotations

from typing import Any

import pytest

from durable_celery import NonRetryable, RetryLater, RetryPolicy, StepFailed, WorkflowFailed, current_step, step
from tests.conformance.lives import ran, run, say, seconds, start
from tests.pump import Pump

FIXED: dict[str, Any] = {"initial_interval": 10, "backoff_coefficient": 2.0, "jitter": False}


@step(name="checklist.flaky", retry=RetryPolicy(maximum_attempts=3, initial_interval=1))
def flaky(times: int) -> str:
    ran.append(current_step().attempt)
    if current_step().attempt <= times:
        raise ConnectionError(f"busy {current_step().attempt}")
    return "through"


def test_a_failing_step_is_tried_again_until_it_succeeds(pump: Pump) -> None:
    def body() -> Any:
        return (yield from flaky(2))

    handle = start(body)
    pump.finish()
    assert handle.result(timeout=0) == "through"
    assert ran == [1, 2, 3]
    assert [(entry.state, entry.attempts) for entry in handle.history()] == [("SUCCEEDED", 3)]


def test_attempts_wait_longer_each_time(pump: Pump) -> None:
    at: list[float] = []

    @step(name="checklist.late", retry=RetryPolicy(maximum_attempts=4, maximum_interval=30, **FIXED))
    def late() -> None:
        at.append(seconds(pump))
        raise OSError("down")

    def body() -> Any:
        try:
            yield from late()
        except StepFailed as error:
            return error.attempts

    assert run(pump, body) == 4
    assert at == [0, 10, 30, 60]


def test_a_step_out_of_attempts_raises_step_failed(pump: Pump) -> None:
    def body() -> Any:
        try:
            yield from flaky(9)
        except StepFailed as error:
            told = (error.step, error.position, error.attempts, error.error_type, error.message)
            return *told, error.matches(ConnectionError, "nobody"), error.timed_out, error.lost

    assert run(pump, body) == ("checklist.flaky", "1", 3, "ConnectionError", "busy 3", True, False, False)


def test_one_attempt_is_all_without_retry(pump: Pump) -> None:
    def body() -> Any:
        yield from flaky.using(retry=None)(9)

    with pytest.raises(WorkflowFailed):
        run(pump, body)
    assert ran == [1]


def test_an_error_declared_as_not_retryable_is_final(pump: Pump) -> None:
    def body() -> Any:
        yield from flaky.using(retry=RetryPolicy(non_retryable=(OSError,)))(9)

    with pytest.raises(WorkflowFailed):
        run(pump, body)
    assert ran == [1]


def test_an_error_raised_as_not_retryable_is_final_and_keeps_its_type(pump: Pump) -> None:
    @step(name="checklist.final")
    def final() -> None:
        ran.append("final")
        raise NonRetryable(KeyError("gone"))

    def body() -> Any:
        try:
            yield from final()
        except StepFailed as error:
            return error.error_type, error.attempts

    assert run(pump, body) == ("KeyError", 1)
    assert ran == ["final"]


def test_a_programming_error_is_not_retried(pump: Pump) -> None:
    @step(name="checklist.wrong")
    def wrong() -> None:
        ran.append("wrong")
        raise TypeError("a bug")

    def body() -> Any:
        yield from wrong()

    with pytest.raises(WorkflowFailed):
        run(pump, body)
    assert ran == ["wrong"]


def test_retry_later_does_not_count_as_a_failure(pump: Pump) -> None:
    @step(name="checklist.not_yet", retry=None)
    def not_yet() -> float:
        if current_step().attempt < 4:
            raise RetryLater(60)
        return seconds(pump)

    def body() -> Any:
        return (yield from not_yet())

    assert run(pump, body) == 180


def test_at_least_once_a_step_whose_process_died_runs_again(pump: Pump) -> None:
    def body() -> Any:
        return (yield from say("charged"))

    pump.kill_at("body.after")
    assert run(pump, body) == "charged"
    assert ran == ["charged", "charged"]


def test_at_most_once_a_step_whose_process_died_never_runs_again(pump: Pump) -> None:
    def body() -> Any:
        try:
            yield from say.using(on_lost="fail")("charged")
        except StepFailed as error:
            return error.lost, error.timed_out

    pump.kill_at("body.after")
    assert run(pump, body) == (True, False)
    assert ran == ["charged"]


def test_a_result_that_was_stored_survives_the_death_of_its_process(pump: Pump) -> None:
    def body() -> Any:
        return (yield from say("charged"))

    pump.kill_at("record.after")
    assert run(pump, body) == "charged"
    assert ran == ["charged"]


def test_every_attempt_has_the_same_idempotency_key(pump: Pump) -> None:
    keys: list[str] = []

    @step(name="checklist.same", retry=3)
    def same() -> int:
        keys.append(current_step().idempotency_key)
        if len(keys) < 3:
            raise OSError("again")
        return len(set(keys))

    def body() -> Any:
        return (yield from same())

    assert run(pump, body) == 1
    assert len(keys) == 3


def test_an_attempt_over_its_time_is_tried_again(pump: Pump) -> None:
    @step(name="checklist.slow", retry=2, start_to_close_timeout=30)
    def slow() -> int:
        attempt = current_step().attempt
        if attempt == 1:
            pump.advance_time(31)
        return attempt

    def body() -> Any:
        return (yield from slow())

    assert run(pump, body) == 2


def test_attempts_over_their_time_end_timed_out(pump: Pump) -> None:
    @step(name="checklist.slower", retry=None, start_to_close_timeout=30)
    def slower() -> str:
        pump.advance_time(31)
        return "too late"

    def body() -> Any:
        try:
            yield from slower()
        except StepFailed as error:
            return error.timed_out, error.lost

    assert run(pump, body) == (True, False)


def test_a_step_nobody_starts_in_time_is_final(pump: Pump) -> None:
    def body() -> Any:
        try:
            yield from say.using(schedule_to_start_timeout=60, retry=5)("too late")
        except StepFailed as error:
            return error.timed_out, error.attempts

    pump.fate = lambda hint: (120.0,) if hint.step else (0.0,)
    assert run(pump, body) == (True, 0)
    assert ran == []


def test_no_attempt_begins_that_all_of_them_together_have_no_time_for(pump: Pump) -> None:
    def body() -> Any:
        policy = RetryPolicy(maximum_attempts=0, **FIXED)
        try:
            yield from flaky.using(retry=policy, schedule_to_close_timeout=60)(99)
        except StepFailed as error:
            return error.error_type, error.attempts

    assert run(pump, body) == ("ConnectionError", 3)
    assert seconds(pump) < 60


def test_a_silent_body_is_over_its_heartbeat_time_out(pump: Pump) -> None:
    @step(name="checklist.silent", retry=None, heartbeat_timeout=10)
    def silent() -> str:
        for _ in range(3):
            pump.advance_time(6)
            current_step().heartbeat()
        ran.append("alive")
        pump.advance_time(11)
        return "too late"

    def body() -> Any:
        try:
            yield from silent()
        except StepFailed as error:
            return error.timed_out

    assert run(pump, body) is True
    assert ran == ["alive"]


def test_the_next_attempt_sees_the_last_heartbeat(pump: Pump) -> None:
    @step(name="checklist.pages", retry=2)
    def pages() -> Any:
        done = current_step().last_heartbeat
        if done is None:
            current_step().heartbeat({"page": 7})
            raise OSError("connection lost")
        return done

    def body() -> Any:
        return (yield from pages())

    assert run(pump, body) == {"page": 7}
