from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from datetime import timedelta

import pytest

from durable_celery import faults, runtime
from durable_celery.celery import lease as leases
from durable_celery.celery.lease import HeldLease
from tests.celery.fakes import runtime_with
from tests.processes import eventually


@pytest.fixture
def changes():
    return []


@pytest.fixture
def held(fake_store, changes):
    runtime.install(runtime_with(fake_store, lease=timedelta(seconds=0.3)))
    one = HeldLease("w@host", changes.append)
    yield one
    fake_store.down = False
    one.close()


def test_a_lease_says_which_process_of_which_host_holds_it(fake_store, held, changes):
    held.open()
    lease = fake_store.leases[held.id]
    assert (lease.node, lease.pid) == ("w@host", os.getpid())
    assert leases.alive(lease.pid, lease.start_ticks)
    assert lease.boot_id == leases.boot_id()
    assert lease.pid_ns == leases.pid_namespace()
    assert changes == [held.id]


def test_a_lease_is_renewed_and_its_connection_closed_each_time(fake_store, held):
    held.open()
    eventually(lambda: fake_store.calls.count("renew_lease") >= 3, "three renewals")
    assert len(fake_store.leases) == 1
    assert len(fake_store.closed_by) >= 3


def test_a_process_declared_dead_goes_on_under_a_new_lease(fake_store, held, changes):
    held.open()
    first = held.id
    fake_store.dead.add(first)
    eventually(lambda: held.id != first, "a new lease")
    assert changes == [first, held.id]
    assert held.id in fake_store.leases


def test_a_lease_is_taken_when_the_database_comes_back(fake_store, held, changes):
    fake_store.down = True
    held.open()
    assert held.id is None
    assert changes == []
    fake_store.down = False
    eventually(lambda: held.id is not None, "a lease")


def test_an_outage_does_not_end_the_renewals(fake_store, held):
    held.open()
    first = held.id
    fake_store.down = True
    failed = len(fake_store.calls)
    eventually(lambda: len(fake_store.calls) > failed + 1, "tries while the database is away")
    fake_store.down = False
    before = fake_store.calls.count("renew_lease")
    eventually(lambda: fake_store.calls.count("renew_lease") > before, "a renewal")
    assert held.id == first


def test_a_renewal_that_fails_is_tried_again(fake_store, held):
    with faults.injected("lease.before_renewal:raise:2; lease.after_renewal:raise:3") as injection:
        held.open()
        eventually(lambda: sum(injection.struck.values()) == 2, "both faults")
        renewals = fake_store.calls.count("renew_lease")
        eventually(lambda: fake_store.calls.count("renew_lease") > renewals, "another renewal")
    assert list(fake_store.leases) == [held.id]


def test_closing_gives_the_lease_back_and_ends_its_thread(fake_store, held, changes):
    held.open()
    held.close()
    assert fake_store.leases == {}
    assert changes[-1] is None
    assert not [thread for thread in threading.enumerate() if thread.name == "durable-lease"]


def test_a_running_process_is_alive_and_a_reused_number_is_not():
    ticks = leases.start_ticks(os.getpid())
    assert ticks
    assert leases.alive(os.getpid(), ticks)
    assert not leases.alive(os.getpid(), ticks + 1)


def test_a_dead_process_is_not_alive_even_while_nobody_has_reaped_it():
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) as process:
        ticks = leases.start_ticks(process.pid) or 0
        assert leases.alive(process.pid, ticks)
        process.send_signal(signal.SIGKILL)
        eventually(lambda: not leases.alive(process.pid, ticks), "the death of a zombie being seen")
    assert not leases.alive(process.pid, ticks)


def test_where_the_kernel_says_nothing_nobody_is_judged_dead(monkeypatch):
    monkeypatch.setattr(leases, "_read", lambda path: "")
    assert leases.alive(1, 5)
