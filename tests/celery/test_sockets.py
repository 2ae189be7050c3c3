from __future__ import annotations

import socket
import ssl
import threading
import time

import pytest

from durable_celery.celery.sockets import hold, within


@pytest.fixture
def pair():
    """Two connected sockets; the first keeps to the deadline."""
    one, other = socket.socketpair()
    yield hold(one), other
    one.close()
    other.close()


def test_many_slow_answers_share_one_deadline(pair):
    one, other = pair
    one.settimeout(5)
    ended = threading.Event()

    def answer():
        while not ended.wait(0.05):
            other.send(b"x")

    def ask() -> None:
        while True:
            one.recv(1)

    answers = threading.Thread(target=answer)
    answers.start()
    began = time.monotonic()
    with pytest.raises(TimeoutError), within(0.2):
        ask()
    assert 0.15 < time.monotonic() - began < 2
    ended.set()
    answers.join(10)


def test_a_shorter_time_out_of_the_sockets_own_holds(pair):
    one, _ = pair
    one.settimeout(0.05)
    began = time.monotonic()
    with pytest.raises(TimeoutError), within(30):
        one.recv(1)
    assert time.monotonic() - began < 5
    assert one.gettimeout() == 0.05


def test_a_socket_without_a_time_out_gets_its_blocking_mode_back(pair):
    one, other = pair
    other.send(b"x")
    with within(1):
        assert one.recv(1) == b"x"
    assert one.gettimeout() is None


def test_outside_a_deadline_nothing_changes(pair):
    one, other = pair
    other.send(b"x")
    assert one.recv(1) == b"x"


def test_a_passed_deadline_waits_for_nothing(pair):
    one, other = pair
    other.send(b"x")
    with within(0.01):
        time.sleep(0.02)
        with pytest.raises(TimeoutError, match="the time for publishing is up"):
            one.sendall(b"y")


def test_the_outer_deadline_rules(pair):
    one, other = pair
    with within(30), within(0.01):
        time.sleep(0.02)
        other.send(b"x")
        assert one.recv(1) == b"x"


def test_a_deadline_is_of_one_thread_alone(pair):
    one, other = pair
    done = []

    def wait():
        done.append(one.recv(1))

    with within(0.01):
        thread = threading.Thread(target=wait)
        thread.start()
        time.sleep(0.05)
        other.send(b"x")
        thread.join(10)
    assert done == [b"x"]


def test_holding_twice_is_holding_once_and_an_odd_socket_is_left_as_it_is(pair):
    one, _ = pair
    kind = type(one)
    assert type(hold(one)) is kind
    assert isinstance(one, socket.socket)

    class Odd:
        __slots__ = ("own",)

    odd = Odd()
    assert hold(odd) is odd


def test_an_encrypted_socket_can_be_held():
    left, right = socket.socketpair()
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    secure = hold(context.wrap_socket(left, do_handshake_on_connect=False))
    try:
        with pytest.raises(TimeoutError), within(0.1):
            secure.do_handshake()
    finally:
        secure.close()
        right.close()
