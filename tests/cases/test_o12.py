"""O-12: a sweep that goes on with a list that is out of date changes nothing and starts nothing."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection

from django_app.models import StepAttempt, StepResult
from django_app.store.sweeping import Sweeping
from durable_celery import Workflow, step, sweeps, workflow
from durable_celery import faults as points
from durable_celery.engine import verdicts
from tests.pump import Hint, Pump

ran: list[str] = []


@step
def work() -> str:
    ran.append("work")
    return "done"


@workflow
def working() -> Workflow[str]:
    return (yield from work())


@pytest.fixture(autouse=True)
def _clean() -> None:
    ran.clear()


class Sweeper:
    """A tick in a thread of its own, which stops with its list in hand until it is let go."""

    def __init__(self) -> None:
        self.listed, self.go_on = threading.Event(), threading.Event()
        self.report = sweeps.TickReport()
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._run)

    def start(self) -> None:
        self._thread.start()
        assert self.listed.wait(30), self.error

    def hold(self, name: str = "tick.before_act") -> None:
        if name == "tick.before_act" and threading.current_thread() is self._thread and not self.listed.is_set():
            self.listed.set()
            assert self.go_on.wait(30)

    def finish(self) -> sweeps.TickReport:
        self.go_on.set()
        self._thread.join(30)
        assert not self._thread.is_alive()
        assert self.error is None
        return self.report

    def _run(self) -> None:
        try:
            self.report = sweeps.tick(by="second", force=True)
        except BaseException as error:  # noqa: BLE001 - told to the test
            self.error = error
        finally:
            self.listed.set()
            connection.close()


@pytest.fixture
def sweeper() -> Any:
    sweeper = Sweeper()
    yield sweeper
    sweeper.go_on.set()


@pytest.fixture
def postponed(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, bool]]:
    """What the guarded UPDATE of each sweep hit, by thread."""
    seen: list[tuple[str, bool]] = []
    real: Callable[..., bool] = Sweeping.postpone_step

    def postpone_step(store: Any, *args: Any, **options: Any) -> bool:
        hit = real(store, *args, **options)
        seen.append(("first" if threading.current_thread() is threading.main_thread() else "second", hit))
        return hit

    monkeypatch.setattr(Sweeping, "postpone_step", postpone_step)
    return seen


def stuck(pump: Pump) -> Any:
    """An instance whose step was sent and the message lost."""
    handle = working.start()
    pump.deliver(pump.queue[0])
    pump.queue.clear()
    pump.now += verdicts.RESEND_GRACE
    pump.sent.clear()
    return handle


def step_messages(pump: Pump) -> list[Hint]:
    return [hint for hint in pump.sent if hint.step is not None]


def test_o12_the_second_sweep_finds_the_step_sent_again_and_ended_and_does_nothing(
    pump: Pump, sweeper: Sweeper, postponed: list[tuple[str, bool]]
) -> None:
    handle = stuck(pump)
    points.set_hook(sweeper.hold)
    sweeper.start()
    report = pump.tick()
    assert report.sent == 1
    pump.drain()
    assert handle.result(timeout=0) == "done"
    row = StepResult.objects.filter(instance_id=handle.id).values().get()

    late = sweeper.finish()
    assert postponed == [("first", True), ("second", False)]
    assert (late.sent, late.timed_out, late.released, late.advanced, late.errors) == (0, 0, 0, 0, 0)
    assert StepResult.objects.filter(instance_id=handle.id).values().get() == row
    pump.finish()
    assert len(step_messages(pump)) == 1
    assert ran == ["work"]
    assert (row["state"], row["attempt"]) == ("SUCCEEDED", 1)


def test_o12_nor_does_it_while_the_new_attempt_is_only_on_its_way(
    pump: Pump, sweeper: Sweeper, postponed: list[tuple[str, bool]]
) -> None:
    handle = stuck(pump)
    points.set_hook(sweeper.hold)
    sweeper.start()
    assert pump.tick().sent == 1
    assert sweeper.finish().sent == 0
    assert postponed == [("first", True), ("second", False)]
    assert len(step_messages(pump)) == 1
    pump.finish()
    assert handle.result(timeout=0) == "done"
    assert ran == ["work"]


def test_o12_two_sweeps_that_act_at_one_moment_send_once(pump: Pump, postponed: list[tuple[str, bool]]) -> None:
    handle = stuck(pump)
    both = threading.Barrier(2)
    met = threading.local()

    def reach(name: str) -> None:
        if name == "tick.before_act" and not hasattr(met, "yes"):
            met.yes = True
            both.wait(30)

    points.set_hook(reach)
    second = Sweeper()
    second._thread.start()
    first = pump.tick()
    late = second.finish()
    assert first.sent + late.sent == 1
    assert sorted(hit for _, hit in postponed) == [False, True]
    points.set_hook(None)
    pump.finish()
    assert len(step_messages(pump)) == 1
    assert ran == ["work"]
    assert handle.result(timeout=0) == "done"


def test_o12_a_claim_that_one_sweep_took_back_and_another_worker_ended_is_not_taken_back_again(
    pump: Pump, sweeper: Sweeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    handle = working.start()
    pump.deliver(pump.queue[0])
    pump.kill_at("body.before", proven=False)
    pump.deliver(pump.queue[0])
    for _ in range(12):  # ticks run in good order for as long as a lease lasts, and a little longer
        pump.now += pump.settings.lease / 10
        pump.keep_lease()
        if pump.now > pump.dead[0].expires_at:
            break
        sweeps.tick(by="pump")
    real = verdicts.after_loss

    def after_loss(*args: Any, **options: Any) -> Any:
        sweeper.hold()
        return real(*args, **options)

    monkeypatch.setattr(verdicts, "after_loss", after_loss)
    take_tick = Sweeping.take_tick

    def healthy(store: Any, now: Any, interval: Any, by: str) -> Any:
        return take_tick(store, now, interval, by) or now - pump.settings.lease

    monkeypatch.setattr(Sweeping, "take_tick", healthy)
    sweeper.start()
    assert StepResult.objects.get(instance_id=handle.id).state == "RUNNING"
    assert pump.tick().released == 1
    pump.drain()
    pump.finish()
    assert handle.result(timeout=0) == "done"
    late = sweeper.finish()
    assert (late.released, late.sent, late.errors) == (0, 0, 0)
    row = StepResult.objects.get(instance_id=handle.id)
    assert (row.state, row.attempt, row.expiries, row.deaths) == ("SUCCEEDED", 2, 1, 0)
    assert [kept.outcome for kept in StepAttempt.objects.filter(step_id=row.pk)] == ["lost"]
    pump.finish()
    assert ran == ["work"]
