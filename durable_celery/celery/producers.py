"""Connections of our own to the broker, for publishing only, with time-outs on everything they wait for.

Celery's pool retries for over 40 seconds when a broker accepts and stays silent, and its connections may wait for ever.
"""

from __future__ import annotations

import os
import weakref
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from durable_celery.celery.sockets import keep_to_deadline

KEPT = 8  # idle producers kept for each app

_inherited: list[Any] = []  # a parent's connections: a child must neither use nor say goodbye on them


@dataclass(slots=True)
class Lent:
    """A producer in use. ``fresh`` tells a connection that was just made from one that may have gone stale."""

    producer: Any
    fresh: bool


class Producers:
    """Idle producers by app; thread-safe, and empty again in a forked child."""

    def __init__(self, wait: float) -> None:
        self._wait = wait  # seconds for one connect, read or write
        self._idle: weakref.WeakKeyDictionary[Any, deque[Any]] = weakref.WeakKeyDictionary()
        self._pid = os.getpid()

    @contextmanager
    def lend(self, app: Any, *, fresh: bool = False) -> Iterator[Lent]:
        """A producer for one thread; thrown away, with all idle ones, if the block raises."""
        idle = self._idle_of(app)
        producer = None
        if not fresh:
            with suppress(IndexError):
                producer = idle.pop()
        lent = Lent(producer if producer is not None else self._connect(app), producer is None)
        try:
            yield lent
        except BaseException:
            discard(lent.producer)
            while idle:
                with suppress(IndexError):
                    discard(idle.pop())
            raise
        if len(idle) < KEPT:
            idle.append(lent.producer)
        else:
            discard(lent.producer)

    def close(self) -> None:
        """Drop what is idle."""
        for idle in list(self._idle.values()):
            while idle:
                discard(idle.pop())

    def _idle_of(self, app: Any) -> deque[Any]:
        if self._pid != os.getpid():
            self._pid = os.getpid()
            _inherited.append(self._idle)
            self._idle = weakref.WeakKeyDictionary()
        return self._idle.setdefault(app, deque())

    def _connect(self, app: Any) -> Any:
        connection = app.connection_for_write(connect_timeout=self._wait)
        _limit(connection, self._wait)
        keep_to_deadline(connection)
        try:
            connection.connect()
            _limit_socket(connection, self._wait)
            producer = app.amqp.Producer(connection, auto_declare=False)
            connection.default_channel  # noqa: B018 - opens it
        except BaseException:
            _collect(connection)
            raise
        return producer


def discard(producer: Any) -> None:
    """Close the socket without a word: a farewell would wait for the broker's answer."""
    _collect(producer.connection)


def _collect(connection: Any) -> None:
    with suppress(Exception):
        connection.collect(0.1)


def _limit(connection: Any, wait: float) -> None:
    """Options that bound a connection before it is made: each broker of a failover list is tried once, in that time."""
    brokers = max(len(connection.alt or ()), 1)
    each = wait / brokers
    connection.connect_timeout = each
    options = dict(connection.transport_options or {})
    options.update(max_retries=brokers - 1, interval_start=0, interval_step=0, connect_retries_timeout=wait)
    if connection.transport.driver_type == "redis":
        options.update(socket_connect_timeout=each, socket_timeout=each, retry_on_timeout=False)
    connection.transport_options = options
    # ``connect()`` itself always tries twice, with a pause.
    connection.connect = lambda: connection._ensure_connection(**connection._extract_failover_opts())


def _limit_socket(connection: Any, wait: float) -> None:
    """AMQP clients read in blocking mode once the handshake is done."""
    sock = getattr(connection.connection, "sock", None)
    if sock is not None and hasattr(sock, "settimeout"):
        sock.settimeout(wait)
