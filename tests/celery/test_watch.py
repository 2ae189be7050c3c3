from __future__ import annotations

import os
import signal
import time
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pytest

from durable_celery import sweeps
from durable_celery.celery.errands import Errands
from durable_celery.celery.seat import Seat
from durable_celery.celery.watch import UNKNOWN, Child, Watch, ending, exit_code
from durable_celery.engine import deaths
from tests.processes import eventually


class ErrandsAtOnce(Errands):
    """Does at once what it is given."""

    def add(self, what, errand):
        errand()


class FakeProcess:
    """A forked process that waits to be ended, as billiard's pool lists it."""

    def __init__(self, index: int, status: int | None = None) -> None:
        self.index = index
        self.exitcode: int | None = None
        self.pid = os.fork()
        if self.pid == 0:
            if status is not None:
                os._exit(status)
            time.sleep(60)
            os._exit(0)

    def kill(self):
        os.kill(self.pid, signal.SIGKILL)
        eventually(lambda: exit_code(Child(pid=self.pid, index=0, process=self)) is not None, "its death")

    def reap(self) -> None:
        try:
            os.waitpid(self.pid, 0)
        except ChildProcessError:
            pass


@pytest.fixture
def released(monkeypatch):
    calls = []
    monkeypatch.setattr(sweeps, "release", lambda lease_id, pid, *, reason: calls.append((lease_id, pid, reason)))
    return calls


@pytest.fixture
def seat():
    one = Seat(node="w@host", pool="prefork")
    one.board.lease_id = uuid4()
    return one


@pytest.fixture
def pool():
    listed: list[FakeProcess] = []
    yield listed
    for process in listed:
        if exit_code(Child(pid=process.pid, index=0, process=process)) is None:
            os.kill(process.pid, signal.SIGKILL)
        process.reap()


@pytest.fixture
def watch(seat, pool, released):
    at_once = ErrandsAtOnce()
    return Watch(SimpleNamespace(_pool=SimpleNamespace(_pool=pool)), seat, at_once)


def test_a_killed_childs_claims_are_released_and_looked_for_again(watch, pool, seat, released):
    pool.append(FakeProcess(0))
    watch._look(100.0)
    assert released == []
    pool[0].kill()
    watch._look(100.1)
    watch._look(100.2)
    assert released == [
        (seat.board.lease_id, pool[0].pid, f"pool process {pool[0].pid} of w@host was killed by SIGKILL")
    ]
    watch._look(103.0)
    assert len(released) == 2
    watch._look(110.0)
    assert len(released) == 2


def test_a_child_that_the_pool_has_reaped_already_is_found_dead_too(watch, pool, released):
    pool.append(FakeProcess(0))
    watch._look(100.0)
    pool[0].kill()
    pool[0].reap()
    gone = pool.pop()
    watch._look(100.1)
    assert [pid for _, pid, _ in released] == [gone.pid]


@pytest.mark.parametrize(("status", "count"), [(0, 0), (155, 0), (1, 1)])
def test_a_child_that_ended_in_order_costs_no_query(watch, pool, released, status, count):
    pool.append(FakeProcess(0, status))
    eventually(lambda: exit_code(Child(pid=pool[0].pid, index=0, process=pool[0])) is not None, "its end")
    watch._look(100.0)
    assert len(released) == count


def test_a_child_that_ended_in_the_middle_of_our_message_had_a_claim(watch, pool, seat, released):
    pool.append(FakeProcess(4, 0))
    seat.board.slot(4, pool[0].pid).begin()
    eventually(lambda: exit_code(Child(pid=pool[0].pid, index=4, process=pool[0])) is not None, "its end")
    watch._look(100.0)
    assert len(released) == 1


def test_a_child_past_its_deadline_is_killed_once_and_the_reason_told(watch, pool, seat, released):
    pool.append(FakeProcess(0))
    slot = seat.board.slot(0, pool[0].pid)
    slot.begin()
    slot.deadline(100.0)
    watch._look(99.9)
    assert exit_code(Child(pid=pool[0].pid, index=0, process=pool[0])) is None
    watch._look(100.1)
    eventually(lambda: exit_code(Child(pid=pool[0].pid, index=0, process=pool[0])) is not None, "its death")
    watch._look(100.2)
    ((_, _, reason),) = released
    assert "after its time was up" in reason


@pytest.mark.parametrize("where", ["in a turn", "in a step", "between two messages", "another child's turn", "killed"])
def test_a_death_is_a_turns_only_if_the_child_was_in_it(watch, pool, seat, monkeypatch, where):
    noted: list[Any] = []
    monkeypatch.setattr(deaths, "note", lambda *given: noted.append(given))
    monkeypatch.setattr(deaths, "block_endless", lambda instance: None)
    pool.append(FakeProcess(0))
    pid, instance = pool[0].pid, uuid4()
    slot = seat.board.slot(0, pid if where != "another child's turn" else pid + 1)
    if where != "between two messages":
        slot.begin()
    if where != "in a step":
        slot.deadline(99.0 if where == "killed" else 1000.0, instance)
    if where == "between two messages":
        slot.end()
    watch._look(100.0)
    pool[0].kill()
    eventually(lambda: exit_code(Child(pid=pid, index=0, process=pool[0])) is not None, "its end")
    watch._look(100.1)
    told = f"pool process {pid} of w@host was killed by SIGKILL"
    assert noted == ([(instance, told)] if where == "in a turn" else [])


def test_the_deadline_of_an_earlier_child_of_that_place_means_nobody(watch, pool, seat):
    pool.append(FakeProcess(0))
    slot = seat.board.slot(0, pool[0].pid + 1)
    slot.begin()
    slot.deadline(1.0)
    watch._look(100.0)
    assert exit_code(Child(pid=pool[0].pid, index=0, process=pool[0])) is None


def test_without_a_lease_there_is_nothing_to_release(watch, pool, seat, released):
    seat.board.lease_id = None
    pool.append(FakeProcess(0, 1))
    eventually(lambda: exit_code(Child(pid=pool[0].pid, index=0, process=pool[0])) is not None, "its end")
    watch._look(100.0)
    assert released == []


def test_looking_does_not_reap(pool):
    pool.append(FakeProcess(0, 7))
    child = Child(pid=pool[0].pid, index=0, process=pool[0])
    eventually(lambda: exit_code(child) == 7, "its exit code")
    assert exit_code(child) == 7
    _, status = os.waitpid(child.pid, 0)
    assert os.waitstatus_to_exitcode(status) == 7
    assert exit_code(child) == UNKNOWN


def test_endings_in_words():
    assert ending(3) == "ended with exit code 3"
    assert ending(-9) == "was killed by SIGKILL"
    assert ending(-200) == "was killed by signal 200"
    assert ending(UNKNOWN) == "is gone"
