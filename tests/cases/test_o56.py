"""O-56: after a suspension everything overdue happens once, in its order and in batches; no missed tick is made up."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone

from django_app.models import EngineHeartbeat, StepResult
from durable_celery import Workflow, sleep_until, sweeps, workflow
from durable_celery.celery.beat import entry
from durable_celery.celery.quiet import TICK
from tests import processes
from tests.effects import effects
from tests.processes import eventually
from tests.project.testapp.workflows import napping
from tests.pump import BEGIN, Pump

pytestmark = pytest.mark.django_db(transaction=True)

SUSPENDED = timedelta(minutes=78)
INTERVAL = timedelta(seconds=10)
woken: list[datetime] = []


@workflow(name="o56.sleeping")
def sleeping(when: datetime) -> Workflow[None]:
    yield from sleep_until(when)
    woken.append(when)


@pytest.mark.parametrize(("timers", "batch"), [(50, 20), pytest.param(500, 200, marks=pytest.mark.nightly)])
def test_o56_overdue_timers_fire_once_each_in_due_order_and_in_batches(
    monkeypatch: pytest.MonkeyPatch, timers: int, batch: int
) -> None:
    assert sweeps.BATCH == 200
    monkeypatch.setattr(sweeps, "BATCH", batch)
    with Pump(tick=INTERVAL) as pump:
        due = start(pump, timers)
        # All the ticks that were missed, as a Beat that makes them up would send them.
        won = [sweeps.tick(by=f"made up {number}") for number in range(int(SUSPENDED / INTERVAL))]
        assert [report.won for report in won].count(True) == 1
        assert (won[0].advanced, len(pump.queue)) == (batch, batch), "a tick that is not won sends nothing"
        # The workers are still busy with these: another tick sends others.
        advanced = [sweeps.tick(by="forced", force=True).advanced for _ in range(4)]
        assert advanced == [batch, timers - 2 * batch, 0, 0]
        pump.drain()
        assert woken == due
        pump.now += INTERVAL
        quiet = sweeps.tick(by="after")
        assert (quiet.advanced, quiet.sent, quiet.started, quiet.errors) == (0, 0, 0, 0)
        assert not pump.queue
        assert set(StepResult.objects.filter(kind="timer").values_list("state", flat=True)) == {"SUCCEEDED"}


def start(pump: Pump, timers: int) -> list[datetime]:
    """So many timers, made in another order than they fall due, and then 78 minutes in which nobody looks."""
    woken.clear()
    sweeps.tick(by="before")
    due = [BEGIN + timedelta(seconds=5 + 9 * number) for number in range(timers)]
    sleeping.start_many([(when,) for when in [*due[::2], *reversed(due[1::2])]])
    pump.drain()
    assert StepResult.objects.filter(kind="timer", state="SCHEDULED").count() == timers
    pump.now += SUSPENDED
    pump.keep_lease()
    return due


def test_o56_a_tick_of_beat_that_nobody_took_in_its_time_expires() -> None:
    assert entry(TICK, INTERVAL)["options"] == {"expires": 10, "expire_seconds": 10}


@pytest.mark.kill
@pytest.mark.prefork
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("scheduler", "seconds"),
    [
        pytest.param("database", 5, marks=pytest.mark.on("postgres", "redis")),
        pytest.param("database", 20, marks=pytest.mark.nightly),
        pytest.param("file", 20, marks=pytest.mark.nightly),
    ],
)
def test_o56_a_beat_that_is_stopped_and_goes_on_makes_up_no_tick(
    start_worker: Callable[..., Any], tmp_path: Path, scheduler: str, seconds: int
) -> None:
    of_celery = ["--scheduler=celery.beat:PersistentScheduler", f"--schedule={tmp_path / 'schedule'}"]
    arguments = [*(of_celery if scheduler == "file" else []), "--loglevel=DEBUG"]
    worker = start_worker(concurrency=1)
    beat = processes.start_beat(tmp_path / "beat.log", arguments=arguments)
    try:
        eventually(lambda: len(sent(beat)) >= 2, "ticks that Beat sent", seconds=60)
        os.kill(beat.pid, signal.SIGSTOP)
        stopped_at = timezone.now()
        handle = napping.start("o56", 1)
        # The worker keeps time meanwhile: this one is not stopped, nor is the database.
        eventually(lambda: last_tick() > stopped_at + timedelta(seconds=seconds), "ticks of the worker", seconds=90)
        assert handle.result(timeout=60) == "after"
        before = len(sent(beat))
        os.kill(beat.pid, signal.SIGCONT)
        eventually(lambda: len(sent(beat)) >= before + 3, "ticks that Beat sends again", seconds=60)
        after = sent(beat)[before:]
    finally:
        os.kill(beat.pid, signal.SIGCONT)
        beat.clear()
    span = (after[-1] - after[0]).total_seconds()
    assert len(after) <= span + 2, f"{len(after)} ticks of one second within {span} s: {after}"
    assert effects("o56") == {"before": 1, "after": 1}
    assert "Traceback" not in beat.text()
    assert not worker.ended()


def sent(beat: processes.Worker) -> list[datetime]:
    """When Beat sent our tick, by its own log."""
    lines = re.findall(rf"^\[?([-\d]+ [\d:,]+).*{re.escape(TICK)} sent", beat.text(), re.MULTILINE)
    return [datetime.strptime(line, "%Y-%m-%d %H:%M:%S,%f") for line in lines]  # noqa: DTZ007 - only differences


def last_tick() -> datetime:
    tick: datetime = EngineHeartbeat.objects.values_list("last_tick_at", flat=True).get()
    return tick
