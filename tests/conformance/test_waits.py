from __future__ import annotations

from datetime import timedelta
from typing import Any

from durable_celery import gather, now, sleep, sleep_until
from tests.conformance.lives import ran, run, say, seconds, start
from tests.pump import BEGIN, Pump


def elapsed() -> float:
    return (now() - BEGIN).total_seconds()


def test_a_sleep_takes_its_time_and_gives_none(pump: Pump) -> None:
    def body() -> Any:
        value: object = yield sleep(30)
        return value, elapsed()

    assert run(pump, body) == (None, 30)


def test_a_sleep_takes_timedelta_or_units(pump: Pump) -> None:
    def body() -> Any:
        yield from sleep(timedelta(minutes=1))
        yield from sleep(days=3, hours=2)
        return elapsed()

    assert run(pump, body) == 60 + 74 * 3600


def test_a_sleep_until_ends_then(pump: Pump) -> None:
    def body() -> Any:
        yield from sleep_until(BEGIN + timedelta(days=1))
        return elapsed()

    assert run(pump, body) == 86400


def test_a_sleep_until_the_past_ends_at_once(pump: Pump) -> None:
    def body() -> Any:
        yield from sleep_until(BEGIN - timedelta(days=1))
        return elapsed()

    assert run(pump, body) <= 1


def test_a_sleep_of_zero_or_less_ends_at_once(pump: Pump) -> None:
    def body() -> Any:
        yield from sleep(0)
        yield from sleep(-5)
        return elapsed()

    assert run(pump, body) <= 2


def test_a_very_long_sleep_is_one_row_and_wakes_nobody_before(pump: Pump) -> None:
    def body() -> Any:
        yield from sleep(days=365 * 9)
        return elapsed()

    handle = start(body)
    pump.drain()
    sent = len(pump.sent)
    pump.advance_time(days=365 * 8)
    assert len(pump.sent) == sent
    pump.finish()
    assert handle.result(timeout=0) == 365 * 9 * 86400
    assert len(handle.history()) == 1


def test_several_sleeps_follow_each_other(pump: Pump) -> None:
    def body() -> Any:
        seen = []
        for length in (1, 10, 100):
            yield from sleep(length)
            seen.append(elapsed())
        return seen

    assert run(pump, body) == [1, 11, 111]


def test_sleeps_side_by_side_take_as_long_as_the_longest(pump: Pump) -> None:
    def body() -> Any:
        values = yield from gather(sleep(10), sleep(30), sleep(20))
        return values, elapsed()

    assert run(pump, body) == ((None, None, None), 30)


def test_a_sleep_between_steps_runs_neither_twice(pump: Pump) -> None:
    def body() -> Any:
        yield from say("before")
        yield from sleep(60)
        yield from say("after")

    handle = start(body)
    pump.advance_time(59)
    assert (ran, handle.status) == (["before"], "WAITING")
    pump.advance_time(1)
    assert (ran, handle.status) == (["before", "after"], "COMPLETED")


def test_a_sleep_outlives_a_broker_that_lost_every_message(pump: Pump) -> None:
    def body() -> Any:
        yield from sleep(60)
        return "awake"

    handle = start(body)
    pump.drain()
    pump.queue.clear()
    pump.finish()
    assert handle.result(timeout=0) == "awake"
    assert seconds(pump) >= 60


def test_a_sleep_says_until_when(pump: Pump) -> None:
    def body() -> Any:
        yield from sleep(60)

    handle = start(body)
    pump.drain()
    assert "2026-11-29 12:01:00" in handle.waiting_for
    assert [(entry.kind, entry.state) for entry in handle.history()] == [("timer", "SCHEDULED")]
