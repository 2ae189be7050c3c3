from __future__ import annotations

import os
import signal
import threading
import time

import pytest
from celery.exceptions import SoftTimeLimitExceeded, WorkerTerminate

from durable_celery.celery.board import Board
from durable_celery.celery.deadlines import GRACE, Alarm, ChildGuard, NoGuard


@pytest.fixture
def alarm():
    """An alarm in this process, in a message; SIGUSR1 is given back after the test."""
    before = signal.getsignal(signal.SIGUSR1)
    one = Alarm()
    one.install()
    one.in_message = True
    yield one
    signal.signal(signal.SIGUSR1, before)


@pytest.fixture
def board():
    return Board()


@pytest.fixture
def guard(alarm, board):
    return ChildGuard(alarm, board.slot(0, os.getpid()))


def spin():
    while True:
        pass


def busy(seconds):
    """A body is a function that is called: Python 3.13 leaves a loop's own jump out of the block around it."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        pass


@pytest.mark.parametrize("body", [lambda: time.sleep(30), spin, lambda: threading.Event().wait(30)])
def test_a_body_is_stopped_at_its_limit(guard, body):
    began = time.monotonic()
    with pytest.raises(SoftTimeLimitExceeded), guard.limit(0.2, "token"):
        body()
    assert 0.15 < time.monotonic() - began < 5
    assert guard.fired


def test_a_body_that_ends_in_time_is_left_alone(guard, board):
    with guard.limit(0.2, "token"):
        pass
    ending = time.monotonic() + 0.5
    while time.monotonic() < ending:
        pass
    assert not guard.fired
    assert board.read(0).deadline == 0


def test_the_next_body_has_its_own_time(guard):
    with guard.limit(0.2, "first"):
        time.sleep(0.1)
    with guard.limit(0.5, "second"):
        time.sleep(0.3)
    with pytest.raises(SoftTimeLimitExceeded), guard.limit(0.2, "third"):
        time.sleep(30)
    with guard.limit(5, "fourth"):
        time.sleep(0.01)
    assert not guard.fired


def test_a_sooner_limit_after_a_later_one_is_kept(guard):
    with guard.limit(60, "long"):
        pass
    began = time.monotonic()
    with pytest.raises(SoftTimeLimitExceeded), guard.limit(0.1, "short"):
        time.sleep(30)
    assert time.monotonic() - began < 5


def test_the_process_is_to_be_killed_a_grace_after_the_limit(guard, board):
    began = time.monotonic()
    with guard.limit(10, "token"):
        deadline = board.read(0).deadline
    assert began + 10 + GRACE <= deadline <= time.monotonic() + 10 + GRACE


def test_a_body_that_swallows_the_error_keeps_its_deadline_on_the_board(guard, board):
    with guard.limit(60, "before"):
        pass  # starts the alarm's thread, which may take longer than the next limit
    with guard.limit(0.1, "token"):
        try:
            time.sleep(30)
        except SoftTimeLimitExceeded:
            pass
        assert 0 < board.read(0).deadline <= time.monotonic() + GRACE
    assert guard.fired
    assert board.read(0).deadline == 0


def test_no_limit_is_no_limit(guard, board):
    with guard.limit(None, "token"):
        assert board.read(0).deadline == 0


def test_a_foreign_signal_does_not_hit_our_messages(alarm, guard):
    os.kill(os.getpid(), signal.SIGUSR1)
    with guard.limit(60, "token"):
        os.kill(os.getpid(), signal.SIGUSR1)
    time.sleep(0.05)
    assert not guard.fired


def test_outside_our_messages_a_signal_is_celerys(alarm):
    def celerys(signum, frame):
        raise SoftTimeLimitExceeded

    alarm._previous = celerys
    alarm.in_message = False
    threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGUSR1)).start()
    with pytest.raises(SoftTimeLimitExceeded):
        time.sleep(10)


def test_a_signal_that_comes_after_the_body_does_nothing(alarm, guard):
    with guard.limit(60, "token"):
        late = alarm._armed
    alarm._ringing = late  # the timer thread had chosen it when the body ended
    os.kill(os.getpid(), signal.SIGUSR1)
    with guard.limit(60, "next"):
        time.sleep(0.05)
    assert not guard.fired


def test_a_late_ring_does_not_hit_the_next_body(alarm, guard):
    with guard.limit(60, "first"):
        late = alarm._armed
    with guard.limit(60, "second"):
        alarm._ringing = late
        os.kill(os.getpid(), signal.SIGUSR1)
        time.sleep(0.05)
    assert not guard.fired


def test_many_attempts_share_one_thread_and_cost_little(guard):
    before = threading.active_count()
    began = time.perf_counter()
    for number in range(2_000):
        with guard.limit(300, str(number)):
            pass
    assert time.perf_counter() - began < 2
    assert threading.active_count() <= before + 1


def test_races_at_the_end_of_a_body_never_leak_a_signal(guard):
    for _ in range(300):
        try:
            with guard.limit(0.002, "token"):
                busy(0.002)
        except SoftTimeLimitExceeded:
            assert guard.fired
    time.sleep(0.05)  # nothing may be raised out here


def test_a_fork_of_a_child_has_an_alarm_of_its_own(alarm, board):
    with ChildGuard(alarm, None).limit(60, "parent's"):
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                alarm.install()
                with ChildGuard(alarm, None).limit(0.1, "token"):
                    time.sleep(10)
            except SoftTimeLimitExceeded:
                status = 0
            finally:
                os._exit(status)
        _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == 0


def test_pools_without_signals_limit_nothing():
    guard = NoGuard()
    with guard.limit(0.01, "token"):
        time.sleep(0.05)
    assert not guard.fired


@pytest.mark.parametrize(
    ("code", "expected"),
    [(-(256 - signal.SIGTERM), WorkerTerminate), (-1, SystemExit), (3, SystemExit), (None, SystemExit)],
)
def test_the_pools_own_exit_is_told_from_one_of_the_body(guard, code, expected):
    with pytest.raises(SystemExit) as caught, guard.limit(60, "token"):
        raise SystemExit(code)
    assert type(caught.value) is expected
    assert caught.value.code == code


def test_the_timer_thread_takes_no_signal_that_the_main_thread_has_masked(alarm):
    pid = os.fork()  # with no threads but its own: any other would take the signal, and end the tests
    if pid == 0:
        status = 1
        try:
            alarm.install()
            with ChildGuard(alarm, None).limit(60, "token"):
                pass
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(0.1)
            status = 0 if signal.SIGTERM in signal.sigpending() else 2
        finally:
            os._exit(status)
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == 0
