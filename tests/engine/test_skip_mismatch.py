"""skip where a body does not fit what is recorded."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from durable_celery import (
    Signal,
    Workflow,
    gather,
    sleep,
)
from durable_celery.errors import NotRetryable
from tests.engine.repair_steps import (
    again,
    broken,
    clean,  # noqa: F401
    do,
    go,
    other,
    outside,
    ran,
    shown,
    states,
    undo,
    version,
)
from tests.pump import Pump

pytestmark = pytest.mark.engine


def before() -> Workflow[Any]:
    first = yield from do("a")
    second = yield from again("b")
    return first, second, (yield from do("c"))


def test_a_mismatch_at_the_row_it_waits_for_is_skipped(pump: Pump) -> None:
    def after() -> Workflow[Any]:
        first = yield from do("a")
        second = yield from other("x")
        return first, second, (yield from other("y"))

    broken.add("b")
    handle = version(before).start()
    pump.drain()
    assert states(handle) == {"1": "SUCCEEDED", "2": "RETRYING"}
    version(after)
    go.send(handle, "wake up")
    pump.drain()
    assert handle.status == "BLOCKED"
    handle.skip("2", "by hand")
    pump.finish()
    assert handle.result(timeout=0) == ("A", "by hand", "Y")
    assert ran == ["a", "b", "other y"]
    assert shown(handle) == [
        "1 step do SUCCEEDED 'A'",
        "2 step other SUCCEEDED 'by hand'",
        "2!1 step again CANCELLED None",
        "3 step other SUCCEEDED 'Y'",
    ]


def test_a_mismatch_at_a_row_in_the_past_is_skipped(pump: Pump) -> None:
    def long() -> Workflow[Any]:
        first = yield from do("a")
        second = yield from do("b")
        third = yield from go.wait(timeout=timedelta(days=1))
        return first, second, third, (yield from do("d"))

    def after() -> Workflow[Any]:
        first = yield from do("a")
        second = yield from other("b")
        third = yield from go.wait(timeout=timedelta(days=1))
        return first, second, third, (yield from do("d"))

    handle = version(long).start()
    pump.drain()
    version(after)
    go.send(handle, "went")
    pump.drain()
    assert handle.status == "BLOCKED"
    handle.skip("2", "by hand")
    pump.finish()
    assert handle.result(timeout=0) == ("A", "by hand", "went", "D")
    assert ran == ["a", "b", "d"]
    assert states(handle) == dict.fromkeys(("1", "2", "2!1", "3", "4"), "SUCCEEDED")


def test_a_step_in_place_of_a_gather_that_has_ended(pump: Pump) -> None:
    def long() -> Workflow[Any]:
        yield from do("a")
        yield from gather(do("b"), do("c"))
        return (yield from go.wait(timeout=timedelta(days=1)))

    def after() -> Workflow[Any]:
        yield from do("a")
        both = yield from other("b")
        return both, (yield from go.wait(timeout=timedelta(days=1)))

    handle = version(long).start()
    pump.drain()
    version(after)
    go.send(handle, "went")
    pump.drain()
    assert handle.status == "BLOCKED"
    handle.skip("2", "both")
    pump.finish()
    assert handle.result(timeout=0) == ("both", "went")
    assert list(states(handle)) == ["1", "2", "2!1", "2!1.0", "2!1.1", "3"]


def test_a_step_in_place_of_a_wait_that_a_message_ended_gives_the_message_back(pump: Pump) -> None:
    def long() -> Workflow[Any]:
        yield from go.wait(timeout=timedelta(days=1))
        yield from go.wait(timeout=timedelta(days=1))

    def after() -> Workflow[Any]:
        first = yield from do("a")
        second = yield from go.wait(timeout=timedelta(days=1))
        return first, second, (yield from go.wait(timeout=timedelta(days=1)))

    handle = version(long).start()
    pump.drain()
    go.send(handle, "one")
    pump.drain()
    version(after)
    go.send(handle, "two")
    pump.drain()
    assert handle.status == "BLOCKED"
    handle.skip("1", "by hand")
    pump.finish()
    assert "at position 3: recorded is nothing" in handle.waiting_for
    handle.skip("3", "three")
    pump.finish()
    assert handle.result(timeout=0) == ("by hand", "one", "two")


def test_skipping_goes_on_position_by_position(pump: Pump) -> None:
    def long() -> Workflow[Any]:
        for what in "abc":
            yield from do(what)
        return (yield from go.wait(timeout=timedelta(days=1)))

    def after() -> Workflow[Any]:
        values = []
        for what in "abc":
            values.append((yield from other(what)))
        return values, (yield from go.wait(timeout=timedelta(days=1)))

    handle = version(long).start()
    pump.drain()
    version(after)
    go.send(handle, "went")
    pump.drain()
    for number in (1, 2, 3):
        assert handle.status == "BLOCKED"
        assert f"at position {number}" in handle.waiting_for
        handle.skip(str(number), number)
        pump.finish()
    assert handle.result(timeout=0) == ([1, 2, 3], "went")


def test_a_running_row_set_aside_ends_without_being_heard(pump: Pump) -> None:
    def long() -> Workflow[Any]:
        yield from outside().compensate_with(undo)

    def after() -> Workflow[Any]:
        got = yield from do("a")
        return got, (yield from do("b"))

    handle = version(long).start()
    pump.drain()
    version(after)
    go.send(handle, "wake up")
    pump.drain()
    assert handle.status == "BLOCKED"
    handle.skip("1", "by hand")
    pump.finish()
    assert handle.result(timeout=0) == ("by hand", "B")
    assert states(handle) == {"1": "SUCCEEDED", "1!1": "ABANDONED", "2": "SUCCEEDED"}


def test_what_was_set_aside_is_still_compensated(pump: Pump) -> None:
    def long() -> Workflow[Any]:
        yield from do("a").compensate_with(undo)
        yield from go.wait(timeout=timedelta(days=1))

    def after() -> Workflow[Any]:
        yield from other("x")
        yield from go.wait(timeout=timedelta(days=1))
        yield from do("b")

    broken.add("b")
    handle = version(long).start()
    pump.drain()
    version(after)
    go.send(handle, 1)
    pump.drain()
    handle.skip("1")
    pump.finish()
    assert handle.status == "FAILED"
    assert ran == ["a", "b", "undo A"]
    assert list(states(handle)) == ["1", "1!1", "2", "3", "1!1~"]


def test_a_timer_and_a_signal_are_put_in_place_too(pump: Pump) -> None:
    def long() -> Workflow[Any]:
        yield from outside()

    def after() -> Workflow[Any]:
        return (yield from go.wait(timeout=timedelta(days=1)))

    def later() -> Workflow[Any]:
        yield from sleep(days=1)
        return "slept"

    for body, expected in ((after, "payload"), (later, "slept")):
        handle = version(long).start()
        pump.drain()
        version(body)
        Signal("repair.other").send(handle, "wake up")
        pump.drain()
        assert handle.status == "BLOCKED"
        handle.skip("1", "payload")
        pump.drain()
        assert handle.result(timeout=0) == expected


def test_what_one_result_cannot_stand_for_is_refused(pump: Pump) -> None:
    def long() -> Workflow[Any]:
        yield from do("a")
        yield from go.wait(timeout=timedelta(days=1))

    def side_by_side() -> Workflow[Any]:
        yield from do("a")
        yield from gather(do("b"), do("c"))

    def shorter() -> Workflow[Any]:
        yield from do("a")

    for body, says in (
        (side_by_side, "one result cannot stand for that"),
        (shorter, "no row that a result could stand in"),
    ):
        handle = version(long).start()
        pump.drain()
        version(body)
        go.send(handle, 1)
        pump.drain()
        assert handle.status == "BLOCKED"
        with pytest.raises(NotRetryable, match=says):
            handle.skip("2", 1)
        assert handle.status == "BLOCKED"
        handle.terminate()
