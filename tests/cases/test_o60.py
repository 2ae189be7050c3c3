"""O-60: machines whose clocks are two minutes wrong take no lease early and let no timer wait; the database's clock
rules."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from django.apps import apps
from django.db.models import DateTimeField

from django_app import doctor
from django_app.models import StepAttempt, StepResult, WorkerLease
from durable_celery import RetryPolicy, Workflow, current_step, now, runtime, sleep, step, sweeps, workflow
from durable_celery.celery import lease as leases
from durable_celery.runtime import Clock, Runtime
from tests.effects import effects
from tests.processes import ROOT, eventually
from tests.project.testapp.workflows import napping
from tests.pump import BEGIN, Pump

pytestmark = pytest.mark.django_db(transaction=True)

SKEWS = [(-120, 120), (120, -120), (120, 0), (-120, 0)]
ran: list[tuple[str, datetime]] = []


@step
def work(what: str) -> str:
    ran.append((what, runtime.current().store.now()))
    return what


@step(retry=RetryPolicy(initial_interval=5, jitter=False, maximum_attempts=2))
def second_try() -> int:
    ran.append(("try", runtime.current().store.now()))
    if current_step().attempt == 1:
        raise OSError("not yet")
    return 2


@workflow
def napping_five() -> Workflow[list[datetime]]:
    began = now()
    yield from sleep(5)
    woke = now()
    yield from work("after")
    return [began, woke, now()]


@workflow
def retrying() -> Workflow[int]:
    return (yield from second_try())


@workflow
def working() -> Workflow[str]:
    return (yield from work("once"))


@pytest.fixture(autouse=True)
def _clean() -> None:
    ran.clear()


class Wrong(Clock):
    """The clock of a machine that is off by some seconds; the store's is the database's."""

    def __init__(self, pump: Pump, skew: float) -> None:
        super().__init__(runtime.current().store)
        self._pump, self._skew = pump, timedelta(seconds=skew)

    def local(self) -> datetime:
        return self._pump.now + self._skew


class Hosts:
    """The processes of several machines, each with a clock of its own, on the one database."""

    def __init__(self, pump: Pump, *skews: float) -> None:
        mine = runtime.current()
        self._runtimes = [
            Runtime(store=mine.store, transport=pump, settings=mine.settings, clock=Wrong(pump, skew)) for skew in skews
        ]

    @contextmanager
    def on(self, number: int) -> Iterator[Runtime]:
        before = runtime.current()
        runtime.install(self._runtimes[number])
        try:
            yield self._runtimes[number]
        finally:
            runtime.install(before)


@pytest.mark.parametrize("skews", SKEWS)
def test_o60_a_timer_set_on_one_machine_fires_on_another_at_its_time(pump: Pump, skews: tuple[int, int]) -> None:
    hosts = Hosts(pump, *skews)
    with hosts.on(0):
        handle = napping_five.start()
        pump.drain()
    timer = StepResult.objects.get(instance_id=handle.id, kind="timer")
    assert timer.due_at == BEGIN + timedelta(seconds=5)
    pump.now = BEGIN + timedelta(seconds=4.9)
    with hosts.on(1):
        assert sweeps.tick(by="b", force=True).advanced == 0
    pump.now = BEGIN + timedelta(seconds=5)
    with hosts.on(1):
        assert sweeps.tick(by="b", force=True).advanced == 1
        pump.drain()
    assert ran == [("after", BEGIN + timedelta(seconds=5))]
    moments = handle.result(timeout=0)
    assert moments == [BEGIN, *[BEGIN + timedelta(seconds=5)] * 2]
    assert_no_time_is_from_a_wrong_clock(pump)


@pytest.mark.parametrize("skews", SKEWS)
def test_o60_a_retry_waits_its_delay_and_no_longer(pump: Pump, skews: tuple[int, int]) -> None:
    hosts = Hosts(pump, *skews)
    with hosts.on(0):
        handle = retrying.start()
        pump.drain()
    pump.now = BEGIN + timedelta(seconds=4.9)
    pump.queue.clear()  # without the broker's countdown
    with hosts.on(1):
        assert sweeps.tick(by="b", force=True).sent == 0
    pump.now = BEGIN + timedelta(seconds=5)
    with hosts.on(1):
        assert sweeps.tick(by="b", force=True).sent == 1
        pump.drain()
    assert [moment - BEGIN for _, moment in ran] == [timedelta(0), timedelta(seconds=5)]
    assert handle.result(timeout=0) == 2
    assert_no_time_is_from_a_wrong_clock(pump)


@pytest.mark.parametrize("skews", SKEWS)
def test_o60_a_lease_is_taken_over_when_it_ran_out_and_not_before(pump: Pump, skews: tuple[int, int]) -> None:
    WorkerLease.objects.all().delete()
    hosts = Hosts(pump, *skews)
    lease = runtime.settings().lease
    with hosts.on(0):
        holder = leases.HeldLease("a", lambda lease_id: None)
        holder._keep()
        row = WorkerLease.objects.get(node="a")
        assert row.expires_at == BEGIN + lease
        handle = working.start()
        pump.deliver(pump.queue[0])
        claim(pump, holder.id)
        claimed = StepResult.objects.get(instance_id=handle.id)
        assert claimed.state == "RUNNING"
        assert claimed.started_at == BEGIN
    with hosts.on(1):  # the other machine ticks in good order all the while
        while pump.now < BEGIN + lease:
            sweeps.tick(by="b")
            assert StepResult.objects.get(pk=claimed.pk).state == "RUNNING"
            assert WorkerLease.objects.get(node="a").dead_at is None
            pump.now += timedelta(seconds=1)
        pump.now = BEGIN + lease + timedelta(seconds=1)
        report = sweeps.tick(by="b")
        assert (report.leases, report.released) == (1, 1)
    row.refresh_from_db()
    assert row.dead_at == pump.now
    with hosts.on(1):
        pump.keep_lease()
        pump.finish()
    assert handle.result(timeout=0) == "once"
    assert [kept.outcome for kept in StepAttempt.objects.filter(step_id=claimed.pk)] == ["lost"]
    assert_no_time_is_from_a_wrong_clock(pump)


def claim(pump: Pump, lease_id: Any) -> None:
    """A worker under this lease takes the step that waits, and stands still."""
    (message,) = [hint for hint in pump.queue if hint.step is not None]
    pump.queue.remove(message)
    assert message.step is not None
    rt = runtime.current()
    assert rt.store.claim(
        message.step, token="a" * 32, lease_id=lease_id, pid=1, now=rt.clock.now(), close_at=None, look_at=None
    )


@pytest.mark.parametrize("skew", [-120, 120])
def test_o60_a_clock_that_is_set_while_the_process_runs_is_noticed_at_the_next_look(pump: Pump, skew: int) -> None:
    hosts = Hosts(pump, 0)
    with hosts.on(0) as rt:
        assert rt.clock.now() == BEGIN
        rt.clock._skew = timedelta(seconds=skew)  # type: ignore[attr-defined]
        assert rt.clock.now() == BEGIN  # it jumped by more than OFFSET_AGE: measured again at once
        rt.clock._skew = timedelta(seconds=skew + 30)  # type: ignore[attr-defined]
        sweeps.tick(by="a", force=True)
        assert rt.clock.now() == BEGIN


@pytest.mark.parametrize("skew", [-120, 120])
def test_o60_the_doctor_judges_by_the_clock_of_the_database(pump: Pump, skew: int) -> None:
    hosts = Hosts(pump, skew)
    with hosts.on(0):
        sweeps.tick(by="a", force=True)
        assert doctor.findings() == []


def test_o60_no_reading_of_a_monotonic_clock_reaches_a_table() -> None:
    """What is stored are moments of the database; its columns of numbers are durations and counts."""
    for path in Path(ROOT, "django_app").rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        if path.name == "retries.py":  # how long to try again, in this process
            assert "Model" not in text
            continue
        assert not re.search(r"monotonic|perf_counter", text), path
    for path in Path(ROOT, "durable_celery", "engine").rglob("*.py"):
        if path.name == "budget.py":  # how long a turn may take, in this process
            assert "store" not in path.read_text(encoding="utf-8")
            continue
        for line in path.read_text(encoding="utf-8").splitlines():
            assert "monotonic" not in line or "give_up_at" in line, (path, line)


def assert_no_time_is_from_a_wrong_clock(pump: Pump) -> None:
    """Every moment in the tables lies between the beginning and the last lease or patience after now."""
    seen = 0
    for model in apps.get_app_config("durable_celery").get_models():
        fields = [field.attname for field in model._meta.concrete_fields if isinstance(field, DateTimeField)]
        for values in model.objects.values(*fields) if fields else ():  # type: ignore[attr-defined]
            for name, moment in values.items():
                if moment is None or name in ("close_at", "look_at"):  # five minutes ahead by the step's own terms
                    continue
                seen += 1
                assert BEGIN <= moment <= pump.now + timedelta(seconds=31), (model.__name__, name, moment)
    assert seen > 5


@pytest.mark.kill
@pytest.mark.prefork
def test_o60_real_workers_two_minutes_ahead_and_behind(start_worker: Any) -> None:
    """Leases of 4 s; steps that last longer than those stay where they are."""
    for skew in (-120, 120):
        env = {"TEST_CLOCK_SKEW": str(skew), "TEST_DURABLE_CELERY": '{"LEASE": 4, "TICK": 0.2}'}
        start_worker(env=env, arguments=["-n", f"off-by-{skew}@host"])
    handles = [napping.start(f"o60 {number}", 5) for number in range(6)]
    assert [handle.result(timeout=60) for handle in handles] == ["after"] * 6
    for number in range(6):
        assert effects(f"o60 {number}") == {"before": 1, "after": 1}
    measured = runtime.current().clock.measure()
    eventually(lambda: WorkerLease.objects.filter(dead_at=None).count() == 2, "both leases alive")
    assert not WorkerLease.objects.exclude(dead_at=None).exists()
    steps = StepResult.objects.filter(kind="step")
    assert set(steps.values_list("attempt", "deaths", "expiries")) == {(1, 0, 0)}
    for timer in StepResult.objects.filter(kind="timer"):
        assert timer.due_at <= timer.finished_at <= measured
