"""Messages: buffered, in order, each once; time-outs and defaults."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from durable_celery import Signal, SignalTimeout, Workflow, gather
from durable_celery.core.decision import Closing, Decision, Opening
from durable_celery.core.failure import timed_out
from tests.core.driver import BEGIN, Driver, a, shown

go: Signal[Any] = Signal("go")
stop: Signal[Any] = Signal("stop")


def waits(*names: str) -> Any:
    def body() -> Workflow[list[Any]]:
        values = []
        for name in names:
            values.append((yield from Signal(name).wait()))
        return values

    return body


def test_a_message_is_the_value_of_the_wait() -> None:
    run = Driver(waits("go"))

    assert run.turn() == Decision(
        state="WAITING",
        openings=(Opening(position="1", kind="signal", name="go", state="SCHEDULED"),),
        waiting="signal 'go' at 1",
    )
    run.pass_time()
    run.signal("go", {"by": "ana"})
    assert run.turn() == Decision(
        state="COMPLETED",
        value=[{"by": "ana"}],
        closings=(Closing(position="1", state="SUCCEEDED", result='{"by":"ana"}', at=run.now),),
        taken_messages={1: 0},
        delivered_messages=(1,),
    )


def test_o30_a_message_before_the_first_turn_is_there_even_for_a_wait_of_no_time() -> None:
    def body() -> Workflow[Any]:
        return (yield from go.wait(timeout=0))

    run = Driver(body)
    run.signal("go", 1)

    assert shown(run.turn()) == [
        "open signal go at 1 SCHEDULED",
        "end 1 SUCCEEDED 1",
        "take message 1",
        "COMPLETED 1",
    ]


def test_o30_a_message_that_comes_with_the_first_turn_is_kept_for_a_later_wait() -> None:
    def body() -> Workflow[Any]:
        yield from a()
        return (yield from go.wait(timeout=0))

    run = Driver(body)
    run.signal("go", "early")
    lines = shown(run.turn())
    run.succeed("1")

    assert lines == ["open step core.a at 1 SCHEDULED", "take message 1", "WAITING step core.a at 1"]
    assert shown(run.turn()) == [
        "open signal go at 2 SCHEDULED",
        'end 2 SUCCEEDED "early"',
        "take 1",
        "COMPLETED 'early'",
    ]


def test_messages_of_one_name_are_taken_in_order() -> None:
    run = Driver(waits("go", "go", "go"))
    for number in (3, 1, 2):
        run.signal("go", number)
        run.pass_time()

    assert run.turn().value == [3, 1, 2]


def test_messages_are_in_order_of_their_time_not_of_their_visibility() -> None:
    run = Driver(waits("go", "go"))
    run.signal("go", "second", at=BEGIN + timedelta(seconds=2))
    run.signal("go", "first", at=BEGIN + timedelta(seconds=1))
    run.now += timedelta(seconds=3)

    assert run.turn().value == ["first", "second"]


def test_names_are_apart() -> None:
    run = Driver(waits("go", "stop"))
    run.signal("stop", "s")
    assert run.turn().waiting == "signal 'go' at 1"
    run.signal("go", "g")

    assert run.turn().value == ["g", "s"]


def test_a_message_nobody_waits_for_is_taken_and_kept() -> None:
    run = Driver(waits("go"))
    run.turn()
    run.signal("other", 1)

    assert shown(run.turn()) == ["take message 1", "WAITING signal 'go' at 1"]
    assert not run.has_news()


def test_several_waits_at_once_are_served_in_the_order_they_were_opened() -> None:
    def body() -> Workflow[Any]:
        return (yield from gather(go.wait(), stop.wait(), go.wait()))

    run = Driver(body)
    run.turn()
    run.signal("go", 1)
    assert shown(run.turn()) == [
        "end 1.0 SUCCEEDED 1",
        "take message 1",
        "WAITING gather at 1, 1 of 3 ended, first signal 'stop' at 1.1",
    ]
    run.signal("go", 2)
    run.signal("stop", 3)

    assert run.turn().value == (1, 3, 2)


def test_two_messages_in_one_turn_serve_two_waits_and_a_third_stays() -> None:
    def body() -> Workflow[Any]:
        first = yield from go.wait()
        yield from a()
        second = yield from go.wait()
        return first, second

    run = Driver(body)
    run.turn()
    run.signal("go", 1)
    run.signal("go", 2)
    assert shown(run.turn())[-1] == "WAITING step core.a at 2"
    run.succeed("2")

    assert run.turn().value == (1, 2)


# -- time-outs -----------------------------------------------------------------------------------------------------


def patient(**options: Any) -> Any:
    def body() -> Workflow[Any]:
        try:
            value = yield from go.wait(timeout=10, **options)
        except SignalTimeout as error:
            value = (str(error), error.signal, error.position)
        late = yield from go.wait(timeout=10, default="nothing")
        return value, late

    return body


def test_the_time_out_of_a_wait_runs_from_the_turn_that_opened_it() -> None:
    run = Driver(patient())
    run.turn()
    run.pass_time(9.999)
    assert not run.has_news()
    run.pass_time(0.001)
    text = "no signal 'go' came within 10 s"

    assert run.turn() == Decision(
        state="WAITING",
        openings=(
            Opening(position="2", kind="signal", name="go", state="SCHEDULED", due_at=BEGIN + timedelta(seconds=20)),
        ),
        closings=(Closing(position="1", state="FAILED", failure=timed_out(text), at=BEGIN + timedelta(seconds=10)),),
        taken_entries={1: 0},
        waiting="signal 'go' at 2 until 2026-11-01 08:30:20 UTC",
    )
    run.pass_time(10)
    assert run.turn().value == ((text, "go", "1"), "nothing")


def test_a_default_is_the_value_at_the_time_out() -> None:
    run = Driver(patient(default={"by": "nobody"}))
    run.turn()
    run.pass_time(10)

    assert shown(run.turn())[1:3] == ['end 1 SUCCEEDED {"by":"nobody"}', "take 1"]


def test_a_default_of_none_is_a_default() -> None:
    run = Driver(patient(default=None))
    run.turn()
    run.pass_time(10)
    run.turn()
    run.pass_time(10)

    assert run.turn().value == (None, "nothing")


def test_a_time_out_that_nobody_catches_fails_the_workflow() -> None:
    def body() -> Workflow[None]:
        yield from go.wait(timeout=0)

    run = Driver(body)
    run.turn()

    assert shown(run.turn()) == [
        "end 1 FAILED",
        "take 1",
        "FAILED SignalTimeout: no signal 'go' was there",
    ]


@pytest.mark.parametrize(("sent", "first"), [(9.9, "in time"), (10.0, "in time"), (10.1, None)])
def test_message_and_time_out_in_one_turn_are_taken_by_their_time(sent: float, first: str | None) -> None:
    run = Driver(patient(default=None))
    run.turn()
    run.signal("go", "in time", at=BEGIN + timedelta(seconds=sent))
    run.pass_time(60)
    decision = run.turn()

    if first:
        assert shown(decision)[1:3] == ['end 1 SUCCEEDED "in time"', "take message 1"]
        assert decision.state == "WAITING"
    else:  # the second wait begins in this very turn, and the message is there
        assert decision.value == (None, "in time")
        assert decision.taken_entries == {1: 0}
        assert decision.taken_messages == {1: 1}


def test_a_message_after_the_time_out_stays_for_the_next_wait() -> None:
    run = Driver(patient(default=None))
    run.turn()
    run.pass_time(10)
    run.turn()
    run.pass_time(5)
    run.signal("go", "late")

    assert run.turn().value == (None, "late")


def test_a_message_after_the_last_wait_is_kept_and_changes_nothing() -> None:
    def body() -> Workflow[Any]:
        value = yield from go.wait(timeout=1, default="none")
        yield from a()
        return value

    run = Driver(body)
    run.turn()
    run.pass_time()
    run.turn()
    run.signal("go", "late")
    assert shown(run.turn()) == ["take message 1", "WAITING step core.a at 2"]
    run.succeed("2")

    assert run.turn().value == "none"
