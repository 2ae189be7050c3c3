"""Sockets that keep to a common deadline, however many answers are waited for.

A time-out bounds each read. A broker that answers every one of ten questions slowly takes ten times as long; so what is
left of the deadline bounds each read and write as well. Connections of redis-py and py-amqp are made with such sockets;
for other clients the time-outs of each operation have to do.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from typing import Any

WAITING = ("recv", "recv_into", "send", "sendall", "read", "write", "do_handshake")

_local = threading.local()


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """In the block, on this thread, such sockets wait for ``seconds`` at most, all together; then ``TimeoutError``.

    An outer block rules over one inside it: the tick has more time than whoever starts a workflow.
    """
    outer = getattr(_local, "until", None)
    if outer is None:
        _local.until = time.monotonic() + seconds
    try:
        yield
    finally:
        _local.until = outer


def keep_to_deadline(connection: Any) -> None:
    """Have the connections that this kombu connection will make keep to the deadline."""
    transport = connection.transport
    with suppress(AttributeError, TypeError):
        if transport.driver_type == "redis":
            transport.Channel = _channel_of(transport.Channel)
        elif transport.driver_name == "py-amqp":
            transport.Connection = _amqp_of(transport.Connection)


def hold(sock: Any) -> Any:
    """The same socket, keeping to the deadline from now on."""
    with suppress(TypeError):  # a socket class of an odd layout
        kind: Any = type(sock)
        sock.__class__ = _held(kind)
    return sock


@cache
def _held(kind: type) -> type:
    if getattr(kind, "keeps_to_deadline", False):
        return kind
    methods = {name: _bounded(getattr(kind, name)) for name in WAITING if hasattr(kind, name)}
    return type(kind.__name__, (kind,), {"__slots__": (), "keeps_to_deadline": True, **methods})


def _bounded(method: Any) -> Any:
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        until = getattr(_local, "until", None)
        if until is None:
            return method(self, *args, **kwargs)
        left = until - time.monotonic()
        if left <= 0:
            raise TimeoutError("the time for publishing is up")
        own = self.gettimeout()
        if own is not None and own <= left:
            return method(self, *args, **kwargs)
        self.settimeout(left)
        try:
            return method(self, *args, **kwargs)
        finally:
            with suppress(OSError):  # closed meanwhile
                self.settimeout(own)

    return call


# -- the clients -------------------------------------------------------------------------------------------------------


@cache
def _channel_of(base: Any) -> Any:
    """kombu's Redis channel, with redis-py connections whose sockets are held."""
    return type(
        base.__name__,
        (base,),
        {
            "connection_class": _redis_of(base.connection_class),
            "connection_class_ssl": _redis_of(base.connection_class_ssl),
        },
    )


def _redis_of(base: Any) -> Any:
    if base is None:
        return None

    def connect(self: Any) -> Any:
        return hold(base._connect(self))

    return type(base.__name__, (base,), {"_connect": connect})


@cache
def _amqp_of(base: Any) -> Any:
    """py-amqp's connection, with a transport whose socket is held before the first word is said."""

    def transport(self: Any, *args: Any, **kwargs: Any) -> Any:
        made = base.Transport(self, *args, **kwargs)
        connect, wrap = made._connect, getattr(made, "_wrap_socket", None)

        def held_connect(*where: Any) -> None:
            connect(*where)
            hold(made.sock)

        made._connect = held_connect
        if wrap is not None:
            made._wrap_socket = lambda *given, **options: hold(wrap(*given, **options))
        return made

    return type(base.__name__, (base,), {"Transport": transport})
