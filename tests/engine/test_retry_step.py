"""retry_step: one step is due now or starts afresh, and nothing runs twice."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from durable_celery import (
    StepFailed,
    Workflow,
    gather,
    sleep,
)
from durable_celery.engine import turns
from durable_celery.errors import BadValue, NotRetryable
from tests.engine.repair_steps import (
    again,
    broken,
    clean,  # noqa: F401
    do,
    go,
    meanwhile,
    outside,
    ran,
    states,
    three,
    version,
)
from tests.pump import Pump

pytestmark = pytest.mark.engine


def test_a_step_that_waits_for_its_next_attempt_is_due_now(pump: Pump) -> None:
    def body() -> Workflow[Any]:
        return (yield from again("a"))

    broken.add("a")
    handle = version(body).start()
    pump.drain()
    began = pump.now
    broken.clear()
    handle.retry_step("1")
    pump.drain()
    assert handle.result(timeout=0) == "A"
    assert pump.now == began
    assert handle.history()[0].attempts == 2


def test_a_lost_hint_of_a_retried_step_is_sent_again(pump: Pump) -> None:
    def body() -> Workflow[Any]:
        return (yield from again("a"))

    broken.add("a")
    handle = version(body).start()
    pump.drain()
    broken.clear()
    pump.down = True
    handle.retry_step("1")
    pump.down = False
    pump.advance_time(seconds=10)
    assert handle.result(timeout=0) == "A"


def test_the_last_failure_of_a_failed_instance_is_tried_again(pump: Pump) -> None:
    broken.add("b")
    handle = version(three).start()
    pump.finish()
    broken.clear()
    handle.retry_step("2")
    pump.finish()
    assert handle.result(timeout=0) == ("A", "B", "C")
    assert ran == ["a", "b", "b", "c"]


@pytest.mark.parametrize("seen", [False, True], ids=["untaken", "taken in"])
def test_a_failed_member_starts_afresh_while_the_others_run(pump: Pump, seen: bool) -> None:
    def body() -> Workflow[Any]:
        return (yield from gather(do("a"), outside(), do("c")))

    broken.add("a")
    handle = version(body).start()
    pump.drain()
    if seen:
        go.send(handle, "a turn takes in what is there")
        pump.drain()
    assert states(handle) == {"1": "SCHEDULED", "1.0": "FAILED", "1.1": "EXTERNAL", "1.2": "SUCCEEDED"}
    assert (handle.history()[1].turn is not None) is seen
    broken.clear()
    handle.retry_step("1.0")
    pump.drain()
    handle.skip("1.1", "by hand")
    pump.finish()
    assert handle.result(timeout=0) == ("A", "by hand", "C")
    assert ran == ["a", "c", "a"]


def test_what_the_body_has_seen_fail_is_not_tried_again(pump: Pump) -> None:
    def body() -> Workflow[Any]:
        try:
            yield from do("a")
        except StepFailed:
            yield from outside()

    broken.add("a")
    handle = version(body).start()
    pump.drain()
    with pytest.raises(NotRetryable, match=r"has seen it fail and gone on; fork\('1'\)"):
        handle.retry_step("1")
    with pytest.raises(NotRetryable, match="handed to the outside"):
        handle.retry_step("2")
    assert handle.status == "WAITING"


def test_a_failure_that_a_bug_did_not_take_is_tried_again(pump: Pump) -> None:
    def body() -> Workflow[Any]:
        try:
            return (yield from do("a"))
        except StepFailed as error:
            raise TypeError("a bug in the handler") from error

    broken.add("a")
    handle = version(body).start()
    pump.finish()
    assert handle.status == "BLOCKED"
    broken.clear()
    handle.retry_step("1")
    pump.finish()
    assert handle.result(timeout=0) == "A"


def test_a_running_step_is_not_tried_twice_at_once(pump: Pump) -> None:
    def body() -> Workflow[Any]:
        return (yield from do("a"))

    refused: list[str] = []

    def try_it() -> None:
        with pytest.raises(NotRetryable) as raised:
            handle.retry_step("1")
        refused.append(str(raised.value))

    handle = version(body).start()
    turns.advance(UUID(handle.id))
    with pytest.raises(NotRetryable, match="starts as soon as a worker is free"):
        handle.retry_step("1")
    meanwhile["a"] = try_it
    pump.finish()
    assert "it is RUNNING: an attempt is under way" in refused[0]
    assert ran == ["a"]


def test_what_is_no_step_is_not_tried_again(pump: Pump) -> None:
    def body() -> Workflow[Any]:
        yield from sleep(60)

    handle = version(body).start()
    pump.drain()
    with pytest.raises(NotRetryable, match="a timer is no step"):
        handle.retry_step("1")
    with pytest.raises(BadValue, match="has nothing at position '2'"):
        handle.retry_step("2")
