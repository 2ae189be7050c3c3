"""Brokers that are slow, silent or away: what a publish costs then, and how it goes on."""

from __future__ import annotations

import socket
import threading
import time
from datetime import timedelta
from uuid import uuid4

import pytest

from durable_celery import faults
from durable_celery.celery.transport import CeleryTransport
from durable_celery.conf import Settings
from tests.celery.sending import NOW, messages_in, one, transport_on


@pytest.fixture
def silent_port():
    """A server that accepts every connection and never says a word."""
    server = socket.create_server(("127.0.0.1", 0), backlog=64)
    accepted = []

    def accept():
        while True:
            try:
                accepted.append(server.accept()[0])
            except OSError:
                return

    threading.Thread(target=accept, daemon=True).start()
    yield server.getsockname()[1]
    server.close()
    for connection in accepted:
        connection.close()


@pytest.fixture
def closed_port():
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


@pytest.mark.parametrize("scheme", ["redis", "amqp"])
@pytest.mark.parametrize("count", [1, 50])
def test_a_silent_broker_costs_publish_timeout_in_total_and_raises_nothing(new_app, silent_port, scheme, count):
    app = new_app(
        broker=f"{scheme}://127.0.0.1:{silent_port}//" if scheme == "amqp" else f"redis://127.0.0.1:{silent_port}/0"
    )
    transport = transport_on(app, publish_timeout=timedelta(seconds=1))
    began = time.monotonic()
    assert transport.dispatch([one()] * count, NOW) == 0
    assert time.monotonic() - began < 1.9  # the rest is a busy machine


@pytest.fixture
def slow_port():
    """A server that speaks Redis, each answer after 0.2 s."""
    server = socket.create_server(("127.0.0.1", 0), backlog=64)

    def answer(connection):
        while connection.recv(65536):
            time.sleep(0.2)
            connection.sendall(b"+OK\r\n")

    def accept():
        while True:
            try:
                connection = server.accept()[0]
            except OSError:
                return
            threading.Thread(target=answer, args=(connection,), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    yield server.getsockname()[1]
    server.close()


def test_a_slow_broker_costs_publish_timeout_in_total(new_app, slow_port):
    app = new_app(broker=f"redis://127.0.0.1:{slow_port}/0")
    transport = transport_on(app, publish_timeout=timedelta(seconds=0.7))
    began = time.monotonic()
    transport.dispatch([one()] * 50, NOW)
    assert time.monotonic() - began < 1.5  # fifty answers alone would take ten seconds


@pytest.mark.parametrize("scheme", ["redis", "amqp"])
def test_a_closed_port_costs_next_to_nothing_and_raises_nothing(new_app, closed_port, scheme):
    transport = transport_on(new_app(broker=f"{scheme}://127.0.0.1:{closed_port}"))
    began = time.monotonic()
    assert transport.dispatch([one()], NOW) == 0
    assert time.monotonic() - began < 0.5


def test_a_broker_that_failed_is_left_alone_for_a_while(new_app, silent_port, monkeypatch):
    transport = transport_on(new_app(broker=f"redis://127.0.0.1:{silent_port}"), publish_timeout=timedelta(seconds=0.5))
    transport.dispatch([one()], NOW)
    began = time.monotonic()
    for _ in range(100):
        assert transport.advance(uuid4()) is False
    assert time.monotonic() - began < 0.3
    monkeypatch.setattr(transport, "_silent_until", 0.0)
    began = time.monotonic()
    transport.advance(uuid4())
    assert time.monotonic() - began > 0.1, "it is tried again"


def test_each_broker_of_a_list_is_tried_once_in_the_time_of_one(new_app, silent_port, closed_port):
    app = new_app(
        broker=f"redis://127.0.0.1:{closed_port};redis://127.0.0.1:{silent_port};redis://127.0.0.1:{closed_port}"
    )
    tried = []
    transport = transport_on(app, publish_timeout=timedelta(seconds=0.8))
    connection_for_write = app.connection_for_write

    def watched(**options):
        connection = connection_for_write(**options)
        establish = connection._establish_connection

        def noted():
            tried.append(connection.port)
            return establish()

        connection._establish_connection = noted
        return connection

    app.connection_for_write = watched
    began = time.monotonic()
    assert transport.dispatch([one()], NOW) == 0
    assert time.monotonic() - began < 1.1
    assert tried == [closed_port, silent_port, closed_port]


def test_an_outage_is_told_once_and_its_end_too(app, closed_port, new_app, caplog):
    dead = new_app(broker=f"redis://127.0.0.1:{closed_port}")
    current = [dead]
    transport = CeleryTransport(Settings(), lambda: current[0])
    for _ in range(5):
        transport._silent_until = 0.0
        transport.dispatch([one()], NOW)
    assert caplog.text.count("the broker takes no messages") == 1
    current[0] = app
    transport._silent_until = 0.0
    caplog.set_level("INFO")
    assert transport.dispatch([one()], NOW) == 1
    assert "takes messages again" in caplog.text


def test_a_connection_that_went_stale_is_replaced_at_once(app, transport):
    assert transport.dispatch([one()], NOW) == 1
    (idle,) = transport._producers._idle_of(app)
    calls = []

    def broken(*args, **kwargs):
        calls.append(1)
        raise ConnectionResetError("gone while it was idle")

    idle.publish = broken
    assert transport.dispatch([one(), one()], NOW) == 2
    assert calls == [1]
    assert len(messages_in(app)) == 3


def test_time_that_is_up_in_the_middle_leaves_the_rest_to_the_tick(app, monkeypatch):
    transport = transport_on(app, publish_timeout=timedelta(seconds=0.2))
    send = transport._send

    def slow(*args):
        time.sleep(0.08)
        send(*args)

    monkeypatch.setattr(transport, "_send", slow)
    began = time.monotonic()
    sent = transport.dispatch([one()] * 50, NOW)
    assert 1 <= sent < 10
    assert time.monotonic() - began < 1
    assert len(messages_in(app)) == sent


def test_a_connection_that_is_cut_while_it_is_used_is_made_anew(app, transport):
    assert transport.dispatch([one()], NOW) == 1
    with faults.injected("message.step:cut"):
        assert transport.dispatch([one(step_id=43)], NOW) == 1
    assert [message.headers["durable"]["step"] for message in messages_in(app)] == [42, 43]
