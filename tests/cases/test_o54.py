"""O-54: in the hour that comes twice nothing raises and nothing fires twice: the engine counts in UTC alone."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from zoneinfo import ZoneInfo

import celery
import pytest
from celery.schedules import crontab, schedule
from django.db import connection
from django.test import override_settings

from django_app.models import StepResult
from durable_celery import Workflow, now, sleep, sleep_until, workflow
from durable_celery.celery.beat import entry
from durable_celery.celery.quiet import TICK
from durable_celery.celery.slots import slot_of
from tests.processes import ROOT
from tests.pump import Pump

ZONE = "America/Los_Angeles"
FIRST, LAST = (datetime(2026, 11, 1, hour, 30, tzinfo=timezone.utc) for hour in (8, 10))
STEP = timedelta(seconds=30)
woken: list[tuple[datetime, datetime]] = []  # the instant asked for, and the turn that came


@workflow(name="o54.sleeping_until")
def sleeping_until(when: datetime) -> Workflow[None]:
    yield from sleep_until(when)
    woken.append((when, now()))


@workflow(name="o54.sleeping")
def sleeping(seconds: float) -> Workflow[list[datetime]]:
    began = now()
    yield from sleep(seconds)
    return [began, now()]


@pytest.fixture(params=[False, pytest.param(True, marks=pytest.mark.on("sqlite", "memory"))], ids="USE_TZ={}".format)
def _zone(request: pytest.FixtureRequest, transactional_db: None) -> Iterator[None]:
    """The project's own zone, here and on the connection."""
    connection.close()
    with override_settings(TIME_ZONE=ZONE, USE_TZ=request.param):
        yield
        connection.close()


@pytest.fixture
def clock(_zone: None, pump: Pump) -> Pump:
    pump.now = FIRST
    pump.keep_lease()
    woken.clear()
    return pump


def walk(clock: Pump) -> None:
    """From 01:30 PDT over 01:30 PST to 02:30 PST, a tick every 30 s."""
    clock.drain()
    while clock.now < LAST:
        clock.now += STEP
        report = clock.tick()
        assert (report.won, report.errors) == (True, 0)
        clock.drain()


def test_o54_every_timer_of_the_fold_fires_once_within_a_tick_of_its_instant_and_in_their_order(clock: Pump) -> None:
    instants = [FIRST + timedelta(seconds=17 + 287 * number) for number in range(24)]
    local = [when.astimezone(ZoneInfo(ZONE)) for when in instants]
    assert {when.fold for when in local} == {0, 1}
    for when in [*local[::2], *reversed(local[1::2])]:  # made in another order than they fall due
        sleeping_until.start(when)
    hour = sleeping.start(3600)
    walk(clock)
    began, woke = hour.result(timeout=0)
    assert began == FIRST
    assert timedelta(hours=1) <= woke - began <= timedelta(hours=1) + STEP
    timers = StepResult.objects.filter(kind="timer", instance__name=sleeping_until.name).order_by("due_at")
    assert len(woken) == len(instants) == timers.filter(state="SUCCEEDED").count()
    for when, turn in woken:
        assert timedelta(0) <= turn - when <= STEP
    turns = [turn for _, turn in woken]
    assert turns == sorted(turns)
    asked = [when.astimezone(timezone.utc) for when, _ in woken]
    assert all(earlier < later for earlier, later in pairwise(asked)), "not in the order of UTC"
    assert list(timers.values_list("due_at", flat=True)) == instants


@pytest.mark.skipif(celery.VERSION < (5, 5), reason="Celery 5.4 counts seconds by the wall clock; workers keep time")
def test_o54_our_entry_is_due_every_second_of_the_fold_and_its_slots_do_not_repeat() -> None:
    app: Any = SimpleNamespace(timezone=ZoneInfo(ZONE), conf=SimpleNamespace(enable_utc=True))
    every = entry(TICK, timedelta(seconds=1))["schedule"]
    moment, last = FIRST, FIRST - timedelta(seconds=1)
    ticks = schedule(every, nowfun=lambda: moment.astimezone(ZoneInfo(ZONE)), app=app)
    while moment < LAST:
        state = ticks.is_due(last.astimezone(ZoneInfo(ZONE)))
        assert (state.is_due, 0 <= state.next <= 1) == (True, True), moment
        last, moment = moment, moment + timedelta(seconds=1)


def test_o54_both_of_two_equal_local_minutes_are_slots_of_their_own() -> None:
    half_past = crontab(minute="30", app=SimpleNamespace(timezone=ZoneInfo(ZONE), conf=SimpleNamespace()))  # type: ignore[arg-type]
    nightly: Any = SimpleNamespace(name="nightly", schedule=half_past)
    found = [slot_of(nightly, FIRST + timedelta(hours=hour, seconds=5))["at"] for hour in range(3)]
    assert found == [(FIRST + timedelta(hours=hour)).isoformat() for hour in range(3)]


def test_o54_no_module_of_the_engine_reads_local_time() -> None:
    """Beside them, only what is shown to people may know a zone."""
    naive = re.compile(
        r"datetime\.now\(\)|utcnow|fromtimestamp\(|make_aware|localtime|(?<!utils\.)timezone\.now\(|date\.today"
    )
    shown = {"timeline.py", "looks.py", "localization.py", "values.py"}
    looked = 0
    for folder in ("durable_celery/core", "durable_celery/engine", "durable_celery", "django_app/store", "django_app"):
        for path in Path(ROOT, folder).glob("*.py"):
            if path.name in shown:
                continue
            looked += 1
            for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
                code = line.split("#")[0]
                assert not naive.search(code) or "tz=timezone.utc" in code, f"{path}:{number}: {line}"
    assert looked > 100
