from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable

import pytest

from durable_celery.celery import gate as gates
from durable_celery.celery.gate import Gate


@pytest.fixture
def gate(fake_store):
    return Gate()


def in_thread(call: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    return thread


def test_one_thread_at_a_time_uses_the_database(gate):
    inside, most, lock = [0], [0], threading.Lock()

    def work():
        for _ in range(20):
            with gate.database():
                with lock:
                    inside[0] += 1
                    most[0] = max(most[0], inside[0])
                time.sleep(0.001)
                with lock:
                    inside[0] -= 1

    threads = [in_thread(work) for _ in range(4)]
    for thread in threads:
        thread.join(30)
    assert most == [1]


def test_a_thread_that_hangs_does_not_stop_the_others_for_ever(gate, monkeypatch):
    monkeypatch.setattr(gates, "PATIENCE", 0.05)
    entered, go = threading.Event(), threading.Event()

    def hang():
        with gate.database():
            entered.set()
            go.wait(30)

    thread = in_thread(hang)
    assert entered.wait(10)
    with gate.database():
        assert thread.is_alive()  # and inside
    go.set()
    thread.join(10)


def test_connections_are_closed_by_the_thread_that_used_them_even_after_an_error(gate, fake_store):
    with pytest.raises(ZeroDivisionError), gate.database():
        raise ZeroDivisionError
    assert fake_store.closed_by == [threading.get_ident()]


def test_a_fork_waits_for_whoever_is_inside(gate):
    entered, go, forked = threading.Event(), threading.Event(), threading.Event()

    def use():
        with gate.database():
            entered.set()
            go.wait(30)

    def fork():
        gate._before()
        forked.set()
        gate._after_in_parent()

    user = in_thread(use)
    entered.wait(10)
    forker = in_thread(fork)
    assert not forked.wait(0.1)
    go.set()
    assert forked.wait(10)
    user.join(10)
    forker.join(10)
    with gate.database():
        pass


def test_a_fork_does_not_wait_for_ever(gate, monkeypatch):
    monkeypatch.setattr(gates, "FORK_PATIENCE", 0.05)
    entered, go = threading.Event(), threading.Event()

    def use():
        with gate.database():
            entered.set()
            go.wait(30)

    user = in_thread(use)
    assert entered.wait(10)
    gate._before()
    assert user.is_alive()  # and inside
    gate._after_in_parent()
    go.set()
    user.join(10)


def test_a_child_starts_with_an_open_gate(gate):
    gate.watch_forks()
    entered, go = threading.Event(), threading.Event()

    def use():
        with gate.database():
            entered.set()
            go.wait(30)

    user = in_thread(use)
    entered.wait(10)
    threading.Timer(0.1, go.set).start()
    pid = os.fork()
    if pid == 0:
        os._exit(0 if not gate._inside and not gate._forking else 1)
    _, status = os.waitpid(pid, 0)
    user.join(10)
    assert os.waitstatus_to_exitcode(status) == 0
    assert not gate._forking
