"""The pump itself: what a test can do to messages, processes and time, and what comes of it."""

from __future__ import annotations

from datetime import timedelta

from django_app.models import StepResult
from durable_celery import RetryPolicy, Signal, Workflow, current_step, gather, sleep, step, workflow
from tests.pump import Hint, Pump

go = Signal("go", int)
ran: list[str] = []


@step(retry=RetryPolicy(initial_interval=10, maximum_attempts=3, jitter=False))
def work(what: str, failures: int = 0) -> str:
    ran.append(what)
    if current_step().attempt <= failures:
        raise RuntimeError("not yet")
    return what


@workflow
def busy(days: float) -> Workflow[list[str]]:
    first = yield from work("first", failures=1)
    yield from sleep(timedelta(days=days))
    second, third = yield from gather(work("second"), work("third"))
    return [first, second, third]


@workflow
def asking() -> Workflow[int]:
    return (yield from go.wait(timeout=timedelta(days=3)))


def test_a_workflow_runs_to_its_end_and_time_passes_in_no_time(pump: Pump) -> None:
    ran.clear()
    began = pump.now
    handle = busy.start(2)
    pump.finish()
    assert handle.result(timeout=0) == ["first", "second", "third"]
    assert ran == ["first", "first", "second", "third"]
    assert pump.now - began >= timedelta(days=2, seconds=10)
    assert pump.now - began < timedelta(days=2, seconds=20)


def test_nothing_is_delivered_before_its_time(pump: Pump) -> None:
    ran.clear()
    busy.start(2)
    assert ran == []
    pump.drain()
    assert ran == ["first"]
    pump.advance_time(seconds=9)
    assert ran == ["first"]
    pump.advance_time(days=2)
    assert ran == ["first", "first"]
    pump.advance_time(seconds=10)
    assert ran == ["first", "first", "second", "third"]


def test_lost_messages_are_made_up_for_by_the_tick(pump: Pump) -> None:
    ran.clear()
    pump.fate = lambda hint: ()
    handle = busy.start(0)
    pump.drain()
    assert ran == []
    assert pump.queue == []
    pump.fate = lambda hint: (0.0,) if hint.number % 2 else ()
    pump.finish()
    assert handle.result(timeout=0) == ["first", "second", "third"]


def test_doubled_and_late_messages_run_nothing_twice(pump: Pump) -> None:
    ran.clear()
    pump.fate = lambda hint: (0.0, 0.0, 30.0)
    pump.choose = lambda ready: len(ready) - 1
    handle = busy.start(0)
    pump.finish()
    assert handle.status == "COMPLETED"
    assert sorted(ran) == ["first", "first", "second", "third"]


def test_a_killed_process_leaves_its_step_to_another_at_once_or_when_its_lease_runs_out(pump: Pump) -> None:
    for proven, latest in ((True, 5), (False, 60)):
        ran.clear()
        began = pump.now
        pump.kill_at("record.before", proven=proven)
        handle = busy.start(0)
        pump.finish()
        assert handle.result(timeout=0) == ["first", "second", "third"]
        assert ran == ["first", "first", "second", "third"]
        assert pump.now - began < timedelta(seconds=latest + 20)
        assert StepResult.objects.filter(instance_id=handle.id, deaths=int(proven), expiries=int(not proven)).exists()


def test_a_signal_sent_from_outside_wakes_its_wait(pump: Pump) -> None:
    handle = asking.start()
    pump.drain()
    assert handle.status == "WAITING"
    go.send(handle, 7)
    pump.drain()
    assert handle.result(timeout=0) == 7


def test_a_message_can_be_delivered_while_another_is_worked_on(pump: Pump) -> None:
    ran.clear()
    handle = busy.start(0)
    pump.drain()
    pump.advance_time(seconds=10)
    twice: list[Hint] = [hint for hint in pump.sent if hint.name == work.name][:1]
    ended = pump.deliver(twice[0])
    assert ended is not None
    assert ended.kind == "refused"
    pump.finish()
    assert handle.status == "COMPLETED"


def test_a_signal_whose_hint_is_lost_is_found_by_the_tick_and_one_nobody_waits_for_keeps_no_clock_busy(
    pump: Pump,
) -> None:
    handle = asking.start()
    pump.drain()
    handle.signal("unheard", 1)
    pump.fate = lambda hint: ()
    go.send(handle, 7)
    pump.fate = lambda hint: (0.0,)
    pump.finish()
    assert handle.result(timeout=0) == 7
    other = asking.start()
    other.signal("unheard", 1)
    pump.finish()
    assert other.status == "FAILED"
