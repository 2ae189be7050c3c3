from __future__ import annotations

import logging
from datetime import datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from celery.contrib.testing.worker import start_worker
from kombu import Connection

from durable_celery import runtime, sweeps
from durable_celery.celery import clockwork as clockworks
from durable_celery.celery import install, seat
from durable_celery.celery import worker as workers
from durable_celery.celery.clockwork import SHORTEST, Clockwork
from durable_celery.sweeps import TickReport
from tests.celery.fakes import runtime_with
from tests.processes import eventually


@pytest.fixture(autouse=True)
def _short_waits(monkeypatch):
    """A worker without an event loop looks every two seconds whether it is to stop."""
    monkeypatch.delenv("TEST_BROKER", raising=False)  # Celery's kit takes it for a host
    drain_events = Connection.drain_events
    monkeypatch.setattr(Connection, "drain_events", lambda self, **_: drain_events(self, timeout=0.05))


@pytest.fixture
def quiet(fake_store):
    runtime.install(runtime_with(fake_store, tick_in_worker=False))
    return fake_store


def incarnation_of_worker() -> Any:
    taken = seat.taken()
    assert taken is not None
    return taken.incarnation()


def test_a_worker_holds_a_lease_from_its_start_to_its_end(new_app, quiet):
    app = new_app()
    with start_worker(app, pool="solo", perform_ping_check=False) as running:
        (lease,) = quiet.leases.values()
        assert lease.node == getattr(running, "hostname", None)
        assert incarnation_of_worker().lease_id == lease.id
        assert lease.queues == app.conf.task_default_queue
    assert quiet.leases == {}
    assert seat.taken() is None


def test_what_the_worker_still_held_is_released_before_its_lease_ends(new_app, quiet, monkeypatch):
    order = []
    close = quiet.close_lease

    def released(lease_id, pid, *, reason):
        order.append(("released", lease_id))

    def closed(lease_id):
        order.append(("closed", lease_id))
        close(lease_id)

    monkeypatch.setattr(sweeps, "release", released)
    monkeypatch.setattr(quiet, "close_lease", closed)
    with start_worker(new_app(), pool="solo", perform_ping_check=False):
        (lease_id,) = quiet.leases
    assert order == [("released", lease_id), ("closed", lease_id)]


def test_what_a_prefork_worker_starts_with_is_left_out_of_the_collections_before_its_forks(quiet, monkeypatch):
    frozen = []
    monkeypatch.setattr("gc.freeze", lambda: frozen.append(True))
    for prefork in (False, True):
        monkeypatch.setattr(workers, "_is_prefork", lambda pool, answer=prefork: answer)
        presence = workers.Presence(seat.Seat(node="a", pool="any"), SimpleNamespace(maintain_pool=lambda: None))
        presence.begin()
        presence.end()
    assert frozen == [True]


def test_a_worker_starts_and_stops_while_the_database_is_away(new_app, quiet, said):
    quiet.down = True
    with start_worker(new_app(), pool="solo", perform_ping_check=False):
        assert incarnation_of_worker() is None
    assert any("cannot take its lease" in line for line in said)


def test_a_worker_without_the_app_says_what_to_do_and_runs(new_app, fake_store, said):
    runtime.install(None)
    with start_worker(new_app(), pool="solo", perform_ping_check=False):
        assert seat.taken() is None
    (line,) = [line for line in said if "This worker cannot run workflows" in line]
    assert "add 'durable_celery' to INSTALLED_APPS" in line


def test_a_message_for_an_unknown_step_is_noted_for_a_worker_that_knows_it(new_app, quiet, monkeypatch, said):
    noted: list[int] = []
    monkeypatch.setattr(sweeps, "unknown_step", noted.append)
    app = new_app()
    with start_worker(app, pool="solo", perform_ping_check=False):
        app.send_task("shop.gone", headers={"durable": {"step": 7}})
        eventually(lambda: noted, "the note")
    assert noted == [7]
    assert any("does not know the step shop.gone. Nothing is lost" in line for line in said)


def test_a_message_of_another_unknown_task_is_none_of_our_business(caplog):
    install.on_task_unknown(sender=None, message=SimpleNamespace(headers={}), name="theirs")
    install.on_task_unknown(sender=None, message=SimpleNamespace(headers=None), name="theirs")
    assert "theirs" not in caplog.text


# -- the tick ----------------------------------------------------------------------------------------------------------


class Sweeps:
    """Counts what it is asked for, and answers with the reports it was given."""

    def __init__(self, *reports: TickReport | Exception) -> None:
        self.reports = list(reports)
        self.ticks: list[bool] = []
        self.buried = 0

    def bury_vanished(self, boot_id, pid_ns, alive):
        self.buried += 1

    def tick(self, *, by, force):
        self.ticks.append(force)
        report = self.reports.pop(0) if self.reports else TickReport(won=True)
        if isinstance(report, Exception):
            raise report
        return report


@pytest.fixture
def sweeps_of(fake_store, monkeypatch):
    def make(*reports):
        made = Sweeps(*reports)
        monkeypatch.setattr(clockworks, "sweeps", made)
        return made

    return make


def due_in(seconds: float) -> datetime:
    return runtime.current().clock.now() + timedelta(seconds=seconds)


def test_the_winner_looks_again_when_something_falls_due(sweeps_of):
    swept = sweeps_of(TickReport(won=True, next_look=due_in(0.3)), TickReport(won=True))
    clockwork = Clockwork("w@host")
    assert 0.1 < clockwork._look() <= 0.31
    clockwork._look()
    assert swept.ticks == [False, True]
    assert swept.buried == 1


def test_a_loser_waits_for_the_next_interval(sweeps_of):
    sweeps_of(TickReport(won=False, next_look=due_in(0.2)))
    assert Clockwork("w@host")._look() > 0.9


def test_what_is_due_and_cannot_be_done_is_not_tried_again_at_once(sweeps_of):
    sweeps_of(TickReport(won=True, next_look=due_in(-5)))
    assert Clockwork("w@host")._look() > 0.5


def test_a_backlog_is_worked_off_without_a_pause(sweeps_of):
    sweeps_of(TickReport(won=True, sent=200, next_look=due_in(-5)))
    assert Clockwork("w@host")._look() == SHORTEST


def test_the_tick_outlives_every_error_and_says_so_once(sweeps_of, caplog):
    caplog.set_level(logging.INFO)
    sweeps_of(ConnectionError("away"), ConnectionError("away"))
    clockwork = Clockwork("w@host")
    assert clockwork._look() == 1.0
    assert clockwork._look() == 1.0
    clockwork._look()
    messages = [record.getMessage() for record in caplog.records]
    assert len([text for text in messages if "the tick failed" in text]) == 1
    assert messages[-1] == "the tick works again."


def test_the_thread_ticks_at_once_and_ends_when_it_is_told(sweeps_of, fake_store):
    swept = sweeps_of()
    clockwork = Clockwork("w@host")
    clockwork.start()
    eventually(lambda: swept.ticks, "the first tick")
    clockwork.stop()
    assert not clockwork._thread.is_alive()
    assert fake_store.closed_by
