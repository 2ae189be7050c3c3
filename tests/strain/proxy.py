"""A way to a server that can be cut: to whoever goes through it the server is away, while others still see it."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from urllib.parse import urlsplit


class Proxy:
    """Listens on `port` and passes bytes on, both ways; `cut()` breaks every connection and refuses new ones."""

    def __init__(self, host: str, port: int) -> None:
        self._target = (host, port)
        self._open: set[socket.socket] = set()
        self._away = False
        self._lock = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.refused = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> int:
        """The server is away from now on; how many connections that broke."""
        with self._lock:
            self._away, broken = True, list(self._open)
        for each in broken:
            _close(each)
        return len(broken) // 2

    def restore(self) -> None:
        """It is back."""
        with self._lock:
            self._away = False

    def close(self) -> None:
        """Listen no more."""
        self.cut()
        _close(self._listener)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        try:
            server = socket.create_connection(self._target)
        except OSError:
            _close(client)
            return
        with self._lock:
            if self._away:
                self.refused += 1
                away = True
            else:
                self._open |= {client, server}
                away = False
        if away:
            _close(client)
            _close(server)
            return
        other = threading.Thread(target=_pass_on, args=(server, client), daemon=True)
        other.start()
        _pass_on(client, server)
        other.join()
        with self._lock:
            self._open -= {client, server}


def _pass_on(source: socket.socket, sink: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            sink.sendall(data)
    _close(source)
    _close(sink)


def _close(each: socket.socket) -> None:
    with contextlib.suppress(OSError):
        each.shutdown(socket.SHUT_RDWR)
    each.close()


@contextlib.contextmanager
def before(url: str) -> Iterator[tuple[Proxy, str]]:
    """A proxy before the server of this URL, and the URL that goes through it."""
    address = urlsplit(url)
    proxy = Proxy(address.hostname or "localhost", address.port or 0)
    account, at, _ = address.netloc.rpartition("@")
    try:
        yield proxy, address._replace(netloc=f"{account}{at}127.0.0.1:{proxy.port}").geturl()
    finally:
        proxy.close()
