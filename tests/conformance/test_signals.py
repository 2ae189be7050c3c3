from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from durable_celery import (
    InstanceClosed,
    InstanceNotFound,
    Signal,
    SignalTimeout,
    WorkflowFailed,
    gather,
    get_handle,
    now,
    sleep,
    wait_until,
)
from tests.conformance.lives import numbers, ran, run, say, start
from tests.pump import BEGIN, Pump, release

word = Signal("checklist.word")
other = Signal("checklist.other")


@dataclass(frozen=True)
class Approval:
    by: str


approved = Signal("checklist.approved", Approval)


def listens(times: int) -> Any:
    heard = []
    for _ in range(times):
        heard.append((yield from word.wait()))
    return heard


def test_a_wait_gives_the_payload(pump: Pump) -> None:
    handle = start(listens, 1)
    pump.drain()
    assert handle.status == "WAITING"
    word.send(handle, {"a": 1})
    pump.drain()
    assert handle.result(timeout=0) == [{"a": 1}]


def test_a_signal_without_payload_gives_none(pump: Pump) -> None:
    handle = start(listens, 1)
    handle.signal("checklist.word")
    pump.drain()
    assert handle.result(timeout=0) == [None]


def test_signals_sent_before_the_wait_are_kept(pump: Pump) -> None:
    def body() -> Any:
        yield from sleep(60)
        return (yield from word.wait())

    handle = start(body)
    pump.drain()
    word.send(handle, "early")
    pump.finish()
    assert handle.result(timeout=0) == "early"


def test_signals_are_taken_in_the_order_they_were_sent(pump: Pump) -> None:
    handle = start(listens, 4)
    for n in range(4):
        word.send(handle, n)
    pump.drain()
    assert handle.result(timeout=0) == [0, 1, 2, 3]


def test_a_signal_sent_twice_with_one_id_counts_once(pump: Pump) -> None:
    handle = start(listens, 2)
    word.send(handle, "first", signal_id="hook-1")
    word.send(handle, "again", signal_id="hook-1")
    pump.drain()
    word.send(handle, "again", signal_id="hook-1")
    word.send(handle, "second", signal_id="hook-2")
    pump.drain()
    assert handle.result(timeout=0) == ["first", "second"]


def test_names_are_told_apart(pump: Pump) -> None:
    def body() -> Any:
        return (yield from gather(word.wait(), other.wait()))

    handle = start(body)
    other.send(handle, "o")
    word.send(handle, "w")
    pump.drain()
    assert handle.result(timeout=0) == ("w", "o")


def test_a_name_nobody_waits_for_is_kept_and_changes_nothing(pump: Pump) -> None:
    handle = start(listens, 1)
    other.send(handle, "unread")
    word.send(handle, "read")
    pump.drain()
    assert handle.result(timeout=0) == ["read"]


def test_a_wait_times_out(pump: Pump) -> None:
    def body() -> Any:
        try:
            yield from word.wait(timeout=60)
        except SignalTimeout as error:
            return error.signal, error.position, (now() - BEGIN).total_seconds()

    assert run(pump, body) == ("checklist.word", "1", 60)


def test_a_wait_takes_its_default_at_the_time_out(pump: Pump) -> None:
    def body() -> Any:
        return (yield from word.wait(timeout=60, default="nobody spoke"))

    assert run(pump, body) == "nobody spoke"


def test_a_time_out_nobody_catches_fails_the_workflow(pump: Pump) -> None:
    def body() -> Any:
        yield from word.wait(timeout=60)

    with pytest.raises(WorkflowFailed) as caught:
        run(pump, body)
    assert caught.value.matches(SignalTimeout)


def test_a_signal_in_time_beats_the_time_out(pump: Pump) -> None:
    def body() -> Any:
        return (yield from word.wait(timeout=60, default="late"))

    handle = start(body)
    pump.advance_time(59)
    word.send(handle, "in time")
    pump.finish()
    assert handle.result(timeout=0) == "in time"


def test_a_signal_stored_before_the_time_out_wins_even_if_it_is_seen_after(pump: Pump) -> None:
    def body() -> Any:
        return (yield from word.wait(timeout=60, default="late"))

    handle = start(body)
    pump.advance_time(59)
    handle.pause()
    word.send(handle, "in time")
    pump.advance_time(600)
    handle.resume()
    pump.finish()
    assert handle.result(timeout=0) == "in time"


def test_a_wait_of_no_time_takes_only_what_is_there(pump: Pump) -> None:
    def body() -> Any:
        first = yield from word.wait(timeout=0, default="empty")
        return first, (yield from word.wait(timeout=0, default="empty"))

    handle = start(body)
    word.send(handle, "there")
    pump.finish()
    assert handle.result(timeout=0) == ("there", "empty")


def test_a_signal_with_the_start_is_there_at_once(pump: Pump) -> None:
    target = release(f"checklist.{next(numbers)}", listens)
    handle = target.using(key="k", signal=(word, "with it")).start(2)
    again = target.using(key="k", signal=(word, "to the same")).start(2)
    pump.drain()
    assert (again.id, again.created) == (handle.id, False)
    assert handle.result(timeout=0) == ["with it", "to the same"]


def test_a_handler_takes_signals_in_order_before_the_body_goes_on(pump: Pump) -> None:
    def body() -> Any:
        heard: list[Any] = []
        word.on(heard.append)
        yield from sleep(60)
        return heard

    handle = start(body)
    for n in range(3):
        word.send(handle, n)
        pump.drain()
    pump.finish()
    assert handle.result(timeout=0) == [0, 1, 2]


def test_a_handler_takes_what_came_before_it(pump: Pump) -> None:
    def body() -> Any:
        heard: list[Any] = []
        yield from say("first")
        word.on(heard.append)
        yield from wait_until(lambda: heard)
        return heard

    handle = start(body)
    word.send(handle, "early")
    pump.drain()
    assert handle.result(timeout=0) == ["early"]


def test_a_name_has_waits_or_a_handler_but_not_both(pump: Pump) -> None:
    def body() -> Any:
        word.on(lambda payload: None)
        yield from word.wait()

    handle = start(body)
    pump.drain()
    assert (handle.status, "checklist.word" in handle.waiting_for) == ("BLOCKED", True)


def test_a_payload_of_another_type_is_refused_where_it_is_sent(pump: Pump) -> None:
    def body() -> Any:
        return (yield from approved.wait())

    handle = start(body)
    with pytest.raises(ValueError, match="Approval"):
        approved.send(handle, "ana")  # type: ignore[arg-type]
    approved.send(handle, Approval("ana"))
    pump.drain()
    assert handle.result(timeout=0) == Approval("ana")


def test_a_signal_after_the_end_is_refused(pump: Pump) -> None:
    def body() -> Any:
        return (yield from say("done"))

    handle = start(body)
    pump.drain()
    with pytest.raises(InstanceClosed) as caught:
        word.send(handle, "late")
    assert caught.value.status == "COMPLETED"


def test_a_signal_to_nobody_is_refused(pump: Pump) -> None:
    with pytest.raises(InstanceNotFound):
        word.send(get_handle("018f3b6e-0000-7000-8000-000000000000"), "hello")


def test_a_lost_wake_up_loses_no_signal(pump: Pump) -> None:
    handle = start(listens, 1)
    pump.drain()
    pump.down = True
    word.send(handle, "kept")
    pump.down = False
    pump.finish()
    assert handle.result(timeout=0) == ["kept"]


def test_a_signal_starts_steps(pump: Pump) -> None:
    def body() -> Any:
        for _ in range(2):
            yield from say((yield from word.wait()))

    handle = start(body)
    word.send(handle, "a")
    pump.drain()
    word.send(handle, "b")
    pump.drain()
    assert (handle.status, ran) == ("COMPLETED", ["a", "b"])
