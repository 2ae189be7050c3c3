"""Handlers and warnings over the real database: signals with the start, delivery, what counts as stuck."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from django_app import doctor
from django_app.models import Message, WorkflowInstance
from durable_celery import (
    Signal,
    Workflow,
    WorkflowFailed,
    faults,
    gather,
    query,
    sleep,
    step,
    update,
    uuid4,
    wait_until,
    workflow,
)
from tests.pump import BEGIN, Pump, counted

go = Signal("go", int)
end = Signal("handlers.end")


@step
def work(number: int) -> int:
    return number


@workflow
def handling() -> Workflow[list[Any]]:
    seen: list[Any] = []

    def positive(number: int) -> None:
        if number < 0:
            raise ValueError("negative")

    def on_go(number: int) -> None:
        if number == 13:
            raise WorkflowFailed("thirteen")
        if number == 14:
            raise ValueError("a bug")
        seen.append((number, uuid4()))

    go.on(on_go)
    update("add", lambda number: seen.append((number, uuid4())), positive)
    query("seen", lambda: seen)
    yield from work(1)
    yield from end.wait(warn_after=60)
    return seen


def numbers(handle: Any) -> list[int]:
    return [number for number, _ in handle.query("seen")]


def test_a_signal_with_the_start_goes_to_the_handler(pump: Pump) -> None:
    handle = handling.using(key="a", signal=(go, 1)).start()
    again = handling.using(key="a", signal=(go, 2)).start()
    assert again.created is False
    pump.drain()
    assert numbers(handle) == [1, 2]


def test_a_signal_with_the_start_wakes_the_instance_that_is_open_already(pump: Pump) -> None:
    handle = handling.using(key="a").start()
    pump.drain()
    handling.using(key="a", signal=(go, 1)).start()
    pump.drain()
    assert numbers(handle) == [1]


def test_signals_to_a_handler_are_delivered_once_in_order_and_each_in_one_turn(pump: Pump) -> None:
    handle = handling.start()
    for number in (1, 2, 3):
        handle.signal("go", number, signal_id=f"s-{number % 2}")
    pump.drain()
    handle.signal("end")
    assert numbers(handle) == [1, 2]
    rows = Message.objects.order_by("id").values_list("name", "taken_turn", "delivered_turn")
    assert list(rows) == [("go", 1, 1), ("go", 1, 1), ("end", None, None)]
    pump.drain()
    handle.signal("handlers.end")
    pump.drain()
    assert [number for number, _ in handle.result(timeout=0)] == [1, 2]
    assert Message.objects.get(name="end").delivered_turn is None


def test_a_failure_of_a_handler_ends_the_instance_and_any_other_error_blocks_it(pump: Pump) -> None:
    fails, blocks = handling.start(), handling.start()
    pump.drain()
    fails.signal("go", 13)
    blocks.signal("go", 14)
    pump.drain()
    assert (fails.status, blocks.status) == ("FAILED", "BLOCKED")
    assert "ValueError: a bug (on_go, line" in blocks.waiting_for
    assert list(WorkflowInstance.objects.filter(pk=fails.id).values_list("turn", flat=True)) == [3]


def test_what_a_rejected_update_did_not_do_shifts_no_dice(pump: Pump) -> None:
    handle = handling.start()
    pump.drain()
    handle.update("add", -1, wait=False)
    handle.signal("go", 1)
    pump.drain()
    handle.update("add", -1, wait=False)
    pump.drain()
    handle.update("add", 2, wait=False)
    pump.drain()
    before = handle.query("seen")
    handle.signal("handlers.end")
    pump.drain()
    assert handle.result(timeout=0) == before
    assert [number for number, _ in before] == [1, 2]


def test_a_turn_of_updates_costs_no_more_statements_the_more_there_are(pump: Pump) -> None:
    def cost(count: int) -> int:
        handle = handling.start()
        pump.drain()
        for number in range(count):
            handle.update("add", number, wait=False)
        with counted() as sent:
            pump.deliver(pump.ready()[0])
        assert len(numbers(handle)) == count
        pump.queue.clear()
        return len(sent)

    assert cost(40) == cost(2)


@workflow
def gathering(run: str) -> Workflow[list[Any]]:
    seen: list[int] = []
    state: dict[str, Any] = {"status": "open", "most": 2}
    go.on(seen.append)
    query("status", lambda: state["status"])
    update("most", lambda number: state.update(most=number))
    enough = yield from wait_until(lambda: len(seen) >= state["most"], timeout=60)
    state["status"] = "closed"
    yield from sleep(1)
    return [enough, seen]


def test_a_handler_and_an_update_wake_a_body_that_waits_for_what_they_note(pump: Pump) -> None:
    handle, other = gathering.start("a"), gathering.start("b")
    pump.drain()
    assert handle.query("status") == "open"
    for each in (handle, other):
        each.signal("go", 1)
    pump.drain()
    assert handle.query("status") == "open"
    handle.signal("go", 2)
    other.update("most", 1, wait=False)
    pump.drain()
    assert (handle.query("status"), other.query("status")) == ("closed", "closed")
    pump.advance_time(1)
    assert (handle.result(timeout=0), other.result(timeout=0)) == ([True, [1, 2]], [True, [1]])


def test_a_failing_handler_ends_a_body_that_waits_for_a_condition_or_for_its_cancel(pump: Pump) -> None:
    handle = handling.start()
    pump.drain()
    handle.cancel()
    handle.signal("go", 13)
    pump.drain()
    assert handle.status == "CANCELLED"


@workflow
def patient() -> Workflow[None]:
    yield from gather(Signal("a").wait(warn_after=timedelta(hours=2)), Signal("b").wait(warn_after=3600))
    yield from sleep(days=30)
    yield from Signal("c").wait(warn_after=60, timeout=3600, default=None)


def stuck() -> list[str]:
    return [str(row.pk) for row in WorkflowInstance.objects.stuck()]


def warn_at(handle: Any) -> Any:
    return WorkflowInstance.objects.get(pk=handle.id).warn_at


def test_a_wait_over_its_warn_after_is_stuck_until_it_ends(pump: Pump) -> None:
    handle = patient.start()
    pump.drain()
    assert warn_at(handle) == BEGIN + timedelta(hours=1)
    objects = WorkflowInstance.objects
    assert stuck() == []
    assert not objects.stuck(before=BEGIN + timedelta(minutes=59)).exists()
    assert objects.stuck(before=BEGIN + timedelta(minutes=61)).exists()
    found = [f for f in doctor.findings(now=BEGIN + timedelta(minutes=61)) if f.id == "stuck"]
    assert [finding.examples for finding in found] == [[handle.id]]
    assert "waiting for a signal for longer than its warn_after" in found[0].text
    handle.signal("b")
    pump.drain()
    assert warn_at(handle) == BEGIN + timedelta(hours=2)
    handle.signal("a")
    pump.drain()
    assert warn_at(handle) is None
    assert not objects.stuck(before=BEGIN + timedelta(days=29)).exists()
    pump.advance_time(days=30)
    assert warn_at(handle) == BEGIN + timedelta(days=30, seconds=60)
    pump.advance_time(hours=1)
    assert (handle.status, warn_at(handle)) == ("COMPLETED", None)
    assert not objects.stuck(before=BEGIN + timedelta(days=60)).exists()


def test_what_is_stuck_is_so_by_the_clock_of_the_engine(pump: Pump) -> None:
    handle = patient.start()
    pump.advance_time(minutes=59)
    assert stuck() == []
    pump.advance_time(minutes=2)
    assert stuck() == [handle.id]


def test_a_warning_ends_with_a_cancel(pump: Pump) -> None:
    handle = patient.start()
    pump.drain()
    handle.cancel()
    pump.drain()
    assert (handle.status, warn_at(handle)) == ("CANCELLED", None)


@workflow(name="handlers.hearing")
def hearing() -> Workflow[list[int]]:
    heard: list[int] = []
    go.on(heard.append)
    yield from work(1)
    return heard


@pytest.mark.parametrize("dies_at", [None, "turn.before_commit", "turn.in_transaction", "turn.after_commit"])
def test_a_signal_between_the_last_outcome_and_its_turn_is_heard_once(pump: Pump, dies_at: str | None) -> None:
    pump.fate = lambda hint: (0.0, 0.0)
    handle = hearing.start()
    sent: list[int] = []

    def reach(point: str) -> None:
        if point == "record.after" and not sent:
            sent.append(7)
            pump.now += timedelta(seconds=1)  # at one moment a message comes before an outcome anyway
            go.send(handle, 7)
            if dies_at is not None:
                pump.kill_at(dies_at)
        pump._reach(point)

    faults.set_hook(reach)
    pump.finish()
    assert not pump._kills  # it has died there
    assert handle.result(timeout=0) == [7] == sent
    assert Message.objects.get(instance_id=handle.id, name="go").delivered_turn == 2
