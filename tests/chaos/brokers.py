"""What can be done to the broker of a run: wipe it, restart it, cut its connections, count what is ready in it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psutil

from tests.services import Service, rabbitmq, redis


@dataclass(kw_only=True)
class Redis:
    """A database of a server, as kombu uses it; with ``service`` the server is this run's own."""

    url: str
    queue: str
    service: Service | None = None

    @property
    def kinds(self) -> tuple[str, ...]:
        return ("wipe broker", "cut broker", *(("restart broker",) if self.service else ()))

    def messages(self) -> int:
        with self._connection() as client:
            return self._ready(client)

    def wipe(self) -> int:
        """Those that a worker holds, too: how many there were."""
        with self._connection() as client:
            held = self._ready(client) + int(client.hlen("unacked"))
            if held:
                client.flushdb()
        return held

    def cut(self) -> int:
        """Every connection to this database of the server, but our own."""
        with self._connection() as client:
            own, number = str(client.client_id()), str(int(urlsplit(self.url).path.strip("/") or 0))
            others = [one for one in client.client_list() if one["db"] == number and one["id"] != own]
            return sum(bool(client.client_kill_filter(_id=one["id"])) for one in others)

    def clients(self) -> int:
        with self._connection() as client:
            return len(client.client_list()) - 1

    def halt(self, *, hard: bool) -> None:
        assert self.service is not None
        self.service.halt()

    def relaunch(self) -> None:
        assert self.service is not None
        self.service = self.service.relaunch()

    def answers(self) -> bool:
        address = urlsplit(self.url)
        return redis.answers(address.hostname or "", address.port or 0)

    def _ready(self, client: Any) -> int:
        return sum(int(client.llen(key)) for key in client.keys(f"{self.queue}*") if client.type(key) == b"list")

    @contextmanager
    def _connection(self) -> Iterator[Any]:
        from redis import Redis as Client

        with closing(Client.from_url(self.url, socket_timeout=5)) as client:
            yield client


@dataclass(kw_only=True)
class RabbitMQ:
    """A virtual host; only the server's own tools close the connections of others, so that needs ``service``."""

    url: str
    queue: str
    service: Service | None = None
    _hard: bool = False

    @property
    def kinds(self) -> tuple[str, ...]:
        return ("wipe broker", *(("cut broker", "restart broker") if self.service else ()))

    def messages(self) -> int:
        with self._channel() as channel:
            return int(channel.queue_declare(self.queue, passive=True).message_count)

    def wipe(self) -> int:
        with self._channel() as channel:
            return int(channel.queue_purge(self.queue))

    def cut(self) -> int:
        """Each closing apart: that of a frozen client takes as long as it is frozen."""
        assert self.service is not None
        close = 'spawn(fun() -> rabbit_networking:close_connection(P, "chaos") end)'
        asked = f"length([{close} || P <- pg_local:get_members(rabbit_connections)])."
        return int(rabbitmq.ask(self.service, asked, seconds=15))

    def clients(self) -> int:
        port = urlsplit(self.url).port
        found = psutil.net_connections("tcp4")
        return sum(one.raddr[1:] == (port,) and one.status == "ESTABLISHED" for one in found)

    def halt(self, *, hard: bool) -> None:
        """SIGKILL to the server, which then needs its time to come back; or it ends its broker alone."""
        assert self.service is not None
        self._hard = hard
        if hard:
            self.service.halt()
        else:
            rabbitmq.ask(self.service, "rabbit:stop().")

    def relaunch(self) -> None:
        assert self.service is not None
        if self._hard:
            self.service = self.service.relaunch()
        else:
            rabbitmq.ask(self.service, "rabbit:start().")

    def answers(self) -> bool:
        address = urlsplit(self.url)
        return rabbitmq.answers(address.hostname or "", address.port or 0)

    @contextmanager
    def _channel(self) -> Iterator[Any]:
        from kombu import Connection

        with Connection(self.url, connect_timeout=5) as connection:
            yield connection.default_channel


@dataclass(kw_only=True)
class Filesystem:
    """A folder of files, one a message: nothing to restart and no connection to cut."""

    folder: Path

    kinds = ("wipe broker",)

    def messages(self) -> int:
        return sum(1 for _ in self.folder.glob("*.msg"))

    def wipe(self) -> int:
        removed = 0
        for file in self.folder.glob("*.msg"):
            with suppress(FileNotFoundError):
                file.unlink()
                removed += 1
        return removed

    def answers(self) -> bool:
        return True


def wipe_something(broker: Redis | RabbitMQ | Filesystem, *, seconds: float) -> int:
    """Wipe at a moment at which there is something; 0 if there was none for so long."""
    deadline = time.monotonic() + seconds
    while not (removed := broker.wipe()) and time.monotonic() < deadline:
        time.sleep(0.01)
    return removed
