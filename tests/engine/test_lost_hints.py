"""A message to a worker is a hint: whichever of them is lost, the next looks of the clock make up for it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest

from django_app.models import StepResult
from durable_celery import RetryPolicy, Signal, Workflow, current_step, gather, sleep, step, workflow
from tests.pump import Pump

word = Signal("word", str)


@step
def say(what: str) -> str:
    return what


@workflow
def saying() -> Workflow[str]:
    return (yield from say("hello"))


@workflow
def hearing() -> Workflow[str]:
    return (yield from word.wait())


@workflow
def napping() -> Workflow[str]:
    yield from sleep(60)
    return "awake"


@workflow
def together() -> Workflow[list[str]]:
    return list((yield from gather(say("a"), say("b"))))


@step(retry=RetryPolicy(maximum_attempts=2, initial_interval=30, jitter=False))
def second_time() -> str:
    if current_step().attempt == 1:
        raise ValueError("not yet")
    return "done"


@workflow
def retrying() -> Workflow[str]:
    return (yield from second_time())


@contextmanager
def silence(pump: Pump) -> Iterator[None]:
    """What is published meanwhile is lost."""
    pump.down = True
    yield
    pump.down = False
    assert pump.queue == []


def test_a_start_that_was_never_published_is_started_by_the_clock(pump: Pump) -> None:
    with silence(pump):
        handle = saying.start()
    pump.advance_time(seconds=30)
    assert handle.result(timeout=0) == "hello"


def test_a_step_that_was_never_published_is_sent_by_the_clock(pump: Pump) -> None:
    handle = saying.start()
    first = pump.queue[0]
    with silence(pump):
        pump.deliver(first)
    pump.advance_time(seconds=10)
    assert handle.result(timeout=0) == "hello"


def test_a_signal_whose_hint_is_lost_is_taken_in_by_the_clock(pump: Pump) -> None:
    handle = hearing.start()
    pump.drain()
    with silence(pump):
        word.send(handle, "now")
    pump.advance_time(seconds=10)
    assert handle.result(timeout=0) == "now"


def test_an_outcome_whose_turn_was_lost_is_taken_in_by_the_clock(pump: Pump) -> None:
    """Of a process that died after it had stored the result."""
    handle = together.start()
    pump.kill_at("record.after", 2)
    pump.drain()
    assert handle.status == "WAITING"
    assert [entry.state for entry in handle.history() if entry.kind == "step"] == ["SUCCEEDED", "SUCCEEDED"]
    pump.advance_time(seconds=10)
    assert handle.result(timeout=0) == ["a", "b"]


@pytest.mark.parametrize("body", [saying, napping, retrying, together], ids=lambda body: body.name)
def test_a_broker_that_was_away_for_long_is_not_waited_for_once_it_is_back(pump: Pump, body: Any) -> None:
    """What the broker does not take is no sending: it adds nothing to the wait until the next one."""
    handle = body.start()
    pump.deliver(pump.queue[0])
    if body is retrying:
        pump.drain()  # its first attempt has failed
    pump.queue.clear()
    with silence(pump):
        for _ in range(9):
            pump.now += timedelta(minutes=1)
            pump.tick()
    pump.advance_time(seconds=5)
    assert handle.status == "COMPLETED"


def test_what_the_broker_did_not_take_is_not_said_to_be_sent(pump: Pump, caplog: pytest.LogCaptureFixture) -> None:
    saying.start()
    first = pump.queue[0]
    with silence(pump), caplog.at_level("INFO", "durable_celery"):
        pump.deliver(first)
        pump.advance_time(seconds=10)
    assert "sent again" not in caplog.text
    assert [row.resends for row in StepResult.objects.all()] == [0]


def test_a_timer_is_looked_at_by_the_clock(pump: Pump) -> None:
    handle = napping.start()
    pump.drain()
    pump.advance_time(seconds=59)
    assert handle.status == "WAITING"
    pump.advance_time(seconds=2)
    assert handle.result(timeout=0) == "awake"
