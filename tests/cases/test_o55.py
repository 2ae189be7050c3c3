"""O-55: a dead Beat is told of wherever people look, and what fell due meanwhile happens when it is back."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.db.models import F
from django.test import Client, override_settings
from django_celery_beat.models import PeriodicTask

from django_app import doctor
from django_app.models import EngineHeartbeat, StepResult, WorkerLease, WorkflowInstance
from durable_celery import Workflow, runtime, sleep, sweeps, workflow
from durable_celery.celery.quiet import TICK
from tests import processes
from tests.browser import outside_the_browser
from tests.effects import effects
from tests.processes import ROOT, eventually
from tests.project.testapp.workflows import napping
from tests.pump import Pump

pytestmark = pytest.mark.django_db(transaction=True)

LIST = "/admin/durable_celery/workflowinstance/"
NAPS = 5
BANNER = "Beat seems to be dead"


@workflow(name="o55.napping")
def dozing(seconds: float) -> Workflow[str]:
    yield from sleep(seconds)
    return "awake"


@pytest.mark.kill
@pytest.mark.prefork
@pytest.mark.timeout(180)
@pytest.mark.on("postgres", "redis")
def test_o55_without_ticks_in_workers_a_dead_beat_is_found_and_its_return_makes_up_for_it(
    start_worker: Callable[..., Any], tmp_path: Path
) -> None:
    start_worker(env={"TEST_DURABLE_CELERY": '{"TICK_IN_WORKER": false}'})
    beat = processes.start_beat(tmp_path / "beat.log")
    try:
        assert napping.start("o55 before", 1).result(timeout=60) == "after"
        signs = EngineHeartbeat.objects.filter(last_tick_at__isnull=False, beat_at__isnull=False)
        eventually(signs.exists, "the sign that each run of the sweep leaves")
        handles = [napping.start("o55", 3) for _ in range(NAPS)]
        eventually(lambda: timers("SCHEDULED") == NAPS, "five timers that wait")
        beat.kill()
        eventually(lambda: set(found()) >= {"tick", "beat", "overdue"}, "what the doctor says", seconds=60)
        texts = found()
        assert re.search(r"no tick for \d+ s", texts["tick"])
        assert re.search(rf"^{NAPS} timers, steps or time-outs are overdue by up to \d+ s$", texts["overdue"])
        assert timers("SCHEDULED") == NAPS, "and nobody fires them"
        beat = processes.start_beat(tmp_path / "again.log")
        assert [handle.result(timeout=60) for handle in handles] == ["after"] * NAPS
        assert effects("o55") == {"before": NAPS, "after": NAPS}
        eventually(lambda: not {"tick", "beat", "overdue"} & set(found()), "the doctor is content", seconds=60)
    finally:
        beat.clear()


def found() -> dict[str, str]:
    """What `manage.py durable doctor` prints in a process of its own, by the id of the finding."""
    command = [sys.executable, "-m", "django", "durable", "doctor", "--json", "--patience", "3"]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=False,
        env={**os.environ, "DJANGO_SETTINGS_MODULE": "tests.project.settings"},
    )  # fmt: skip
    assert done.returncode in (0, 1), done.stderr
    told = json.loads(done.stdout)["findings"]
    assert (done.returncode == 1) == bool(told)
    return {one["id"]: one["text"] for one in told}


def timers(state: str) -> int:
    return StepResult.objects.filter(kind="timer", state=state).count()


# -- by a clock of our own --------------------------------------------------------------------------------------------


def beat_dies(pump: Pump, *, ticks_go_on: bool) -> None:
    """A Beat that ticked is silent for 75 s; a worker ticks meanwhile, or does not."""
    PeriodicTask.objects.filter(task=TICK).delete()
    sweeps.tick(by="beat", by_beat=True)  # makes the row
    pump.now += timedelta(seconds=2)
    sweeps.tick(by="beat", by_beat=True)
    assert EngineHeartbeat.objects.get().beat_at == pump.now
    if ticks_go_on:
        pump.advance_time(75)
    else:
        pump.now += timedelta(seconds=75)
    pump.keep_lease()


def health() -> tuple[int, dict[str, Any]]:
    with override_settings(ROOT_URLCONF="durable_celery.urls"):
        response = Client().get("/health/")
    return response.status_code, response.json()


def test_o55_the_health_page_says_how_long_the_clock_stands_and_how_much_is_overdue(pump: Pump) -> None:
    handles = [dozing.start(10) for _ in range(NAPS)]
    pump.drain()
    beat_dies(pump, ticks_go_on=False)
    status, told = health()
    assert (status, told["findings"]) == (503, ["beat", "overdue", "tick"])
    assert any(text.startswith("no tick for 75 s, since ") for text in told["texts"])
    assert f"{NAPS} timers, steps or time-outs are overdue by up to 67 s" in told["texts"]
    assert [handle.status for handle in handles] == ["WAITING"] * NAPS
    sweeps.tick(by="beat", by_beat=True)  # it is back
    pump.drain()
    assert [handle.result(timeout=0) for handle in handles] == ["awake"] * NAPS
    assert health()[0] == 200


def test_o55_while_workers_keep_time_only_the_dead_beat_is_told_of(pump: Pump) -> None:
    handle = dozing.start(10)
    pump.drain()
    beat_dies(pump, ticks_go_on=True)
    assert handle.result(timeout=0) == "awake"
    assert [finding.id for finding in doctor.findings()] == ["beat"]
    status, told = health()
    assert (status, told["findings"]) == (503, ["beat"])


def test_o55_the_list_of_instances_carries_the_banner_until_beat_is_back(pump: Pump, admin_client: Client) -> None:
    assert BANNER not in admin_client.get(LIST).content.decode()
    beat_dies(pump, ticks_go_on=True)
    assert BANNER in admin_client.get(LIST).content.decode()
    sweeps.tick(by="beat", by_beat=True, force=True)
    assert BANNER not in admin_client.get(LIST).content.decode()


@pytest.mark.browser
def test_o55_the_banner_in_a_browser(dead_beat: None, page: Any) -> None:
    page.goto(LIST)
    banner = page.locator(".messagelist .warning")
    assert banner.is_visible()
    assert BANNER in banner.inner_text()
    assert "celery -A proj beat" in banner.inner_text()
    outside_the_browser(lambda: EngineHeartbeat.objects.update(beat_at=F("last_tick_at")))
    page.goto(LIST)
    assert page.locator(".messagelist").count() == 0


@pytest.fixture
def dead_beat(transactional_db: None) -> None:
    """Ticks go on, by the database's own clock; none came from Beat for two minutes. Made before the browser starts."""
    now = runtime.current().clock.measure()
    EngineHeartbeat.objects.update_or_create(
        pk=1, defaults={"last_tick_at": now, "healthy_since": now, "beat_at": now - timedelta(minutes=2)}
    )
    assert not WorkerLease.objects.exists()
    assert not WorkflowInstance.objects.exists()
