"""O-53: two Beats, or two ticks at one moment, fire each timer once. `tests/celery/test_two_beats.py` tells it of
schedules."""

from __future__ import annotations

import threading
from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.db import connection

from django_app.models import EngineHeartbeat, StepResult
from durable_celery import Workflow, runtime, sleep, step, sweeps, workflow
from durable_celery import faults as points
from tests import processes
from tests.effects import effects
from tests.processes import eventually
from tests.project.testapp.case_clocks import meeting
from tests.pump import Pump
from tests.store.making import at_once

pytestmark = pytest.mark.django_db(transaction=True)

COUNT = 200
ran: Counter[int] = Counter()


@step
def after(number: int) -> int:
    ran[number] += 1
    return number


@workflow
def napping(number: int) -> Workflow[int]:
    yield from sleep(60)
    return (yield from after(number))


@pytest.fixture(autouse=True)
def _clean() -> None:
    ran.clear()


def asleep(pump: Pump, count: int) -> list[Any]:
    handles = napping.start_many([(number,) for number in range(count)])
    pump.drain()
    assert timers(state="SCHEDULED") == count
    pump.now += timedelta(seconds=60)
    pump.sent.clear()
    return list(handles)


def timers(**state: Any) -> int:
    return StepResult.objects.filter(kind="timer", **state).count()


def test_o53_two_ticks_that_overlap_fire_each_of_200_timers_once(pump: Pump) -> None:
    handles = asleep(pump, COUNT)
    both = threading.Barrier(2)
    met = threading.local()

    def reach(name: str) -> None:
        if name == "tick.before_act" and not hasattr(met, "yes"):
            met.yes = True
            both.wait(60)  # each has read all 200 rows and changed none

    points.set_hook(reach)
    reports = at_once(*[lambda by=by: sweeps.tick(by=by, force=True) for by in ("one", "two")])
    points.set_hook(None)
    assert all(isinstance(report, sweeps.TickReport) for report in reports), reports
    assert sum(report.advanced for report in reports) == COUNT
    assert [report.errors for report in reports] == [0, 0]
    assert len(pump.sent) == COUNT  # one wake-up for each

    again = sweeps.tick(by="two", force=True)
    assert (again.timed_out, again.sent, again.advanced) == (0, 0, 0)
    pump.finish()
    assert timers(state="SUCCEEDED") == COUNT
    assert [handle.result(timeout=0) for handle in handles] == list(range(COUNT))
    assert ran == dict.fromkeys(range(COUNT), 1)
    assert pump.tasks()[after.name] == COUNT


def test_o53_the_second_tick_with_the_whole_list_in_hand_reports_no_row(pump: Pump) -> None:
    handles = asleep(pump, 20)
    listed, go_on = threading.Event(), threading.Event()
    late: list[sweeps.TickReport] = []

    def reach(name: str) -> None:
        if name == "tick.before_act" and threading.current_thread() is thread and not listed.is_set():
            listed.set()
            assert go_on.wait(60)

    def tick() -> None:
        try:
            late.append(sweeps.tick(by="two", force=True))
        finally:
            listed.set()
            connection.close()

    thread = threading.Thread(target=tick)
    points.set_hook(reach)
    thread.start()
    assert listed.wait(60)
    assert sweeps.tick(by="one", force=True).advanced == 20
    pump.drain()
    go_on.set()
    thread.join(60)
    (report,) = late
    assert (report.timed_out, report.sent, report.advanced, report.errors) == (0, 0, 0, 0)
    pump.finish()
    assert [handle.status for handle in handles] == ["COMPLETED"] * 20
    assert set(ran.values()) == {1}


@pytest.mark.parametrize("point", ["turn.before_commit", "turn.in_transaction", "turn.after_commit"])
def test_o53_a_timer_fires_in_the_transaction_that_records_what_it_woke(pump: Pump, point: str) -> None:
    (handle,) = asleep(pump, 1)
    pump.kill_at(point)
    assert pump.tick().advanced == 1
    pump.deliver(pump.queue[0])
    steps = StepResult.objects.filter(instance_id=handle.id, kind="step")
    fired = point == "turn.after_commit"
    assert timers(state="SUCCEEDED" if fired else "SCHEDULED") == 1
    assert steps.count() == fired
    pump.finish()
    assert handle.result(timeout=0) == 0
    assert timers(state="SUCCEEDED") == 1
    assert ran == {0: 1}


def test_o53_a_wake_up_that_no_broker_took_comes_with_a_later_tick(pump: Pump) -> None:
    (handle,) = asleep(pump, 1)
    pump.down = True
    assert sweeps.tick(by="one", force=True).advanced == 0
    pump.down = False
    pump.finish()
    assert handle.result(timeout=0) == 0
    assert ran == {0: 1}


def test_o53_a_turn_delivered_twice_fires_once(pump: Pump) -> None:
    (handle,) = asleep(pump, 1)
    pump.fate = lambda hint: (0.0, 0.0)
    pump.finish()
    assert timers(state="SUCCEEDED") == 1
    assert ran == {0: 1}
    assert handle.result(timeout=0) == 0


def test_o53_of_two_beats_one_has_the_interval(pump: Pump) -> None:
    pump.now += timedelta(hours=1)
    reports = at_once(*[lambda by=by: sweeps.tick(by=by) for by in ("beat one", "beat two")])
    assert sorted(report.won for report in reports) == [False, True]
    assert EngineHeartbeat.objects.get().last_tick_by in ("beat one", "beat two")


@pytest.mark.kill
@pytest.mark.prefork
@pytest.mark.parametrize("count", [40, pytest.param(COUNT, marks=pytest.mark.nightly)])
def test_o53_two_beats_and_two_workers_fire_timers_of_one_second_once(
    start_worker: Any, tmp_path: Path, count: int
) -> None:
    beats = [processes.start_beat(tmp_path / f"beat{number}.log") for number in range(2)]
    try:
        for number in range(2):
            start_worker(arguments=["-n", f"o53-{number}@host"])
        eventually(lambda: all("beat: Starting" in beat.text() for beat in beats), "both Beats at work")
        when = runtime.current().clock.measure() + timedelta(seconds=6)
        handles = meeting.start_many([(f"o53 {number}", when) for number in range(count)])
        assert [handle.result(timeout=60) for handle in handles] == ["after"] * count
        assert not any(beat.ended() for beat in beats)
    finally:
        for beat in beats:
            beat.clear()
    for number in range(count):
        assert effects(f"o53 {number}") == {"after": 1}
    fired = StepResult.objects.filter(kind="timer")
    assert fired.count() == fired.filter(state="SUCCEEDED").count() == count
    assert not fired.filter(finished_at__lt=when).exists()
    assert set(StepResult.objects.filter(kind="step").values_list("attempt", flat=True)) == {1}
