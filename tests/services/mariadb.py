"""MariaDB. There is no wheel of it: it is found in the environment or as a program."""

from __future__ import annotations

import os
import shutil
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

ACCOUNT = """\
CREATE DATABASE IF NOT EXISTS test;
CREATE USER IF NOT EXISTS 'test'@'%' IDENTIFIED BY 'test';
GRANT ALL PRIVILEGES ON *.* TO 'test'@'%';
"""


def find() -> Service | None:
    """The service of the environment or a new private one; None if the program is not installed."""
    return from_environment("mariadb", answers) or start()


def start(port: int | None = None) -> Service | None:
    """A private server on `port` (a free one by default), account `test` with password `test`, utf8mb4."""
    server, installer = program("mariadbd"), program("mariadb-install-db")
    if server is None or installer is None:
        return None
    port = port or free_port()
    user = unprivileged("mysql")
    folder = private_folder("mariadb", user)
    data = folder / "data"
    run([installer, "--no-defaults", f"--datadir={data}", "--skip-test-db"], user=user, folder=folder)
    account = folder / "account.sql"
    account.write_text(ACCOUNT)
    options = [
        f"--datadir={data}",
        f"--socket={folder / 'socket'}",
        f"--pid-file={folder / 'pid'}",
        f"--port={port}",
        f"--init-file={account}",
        "--bind-address=127.0.0.1",
        "--skip-name-resolve",
        "--character-set-server=utf8mb4",
        "--collation-server=utf8mb4_general_ci",
        "--max-connections=200",
        "--innodb-flush-log-at-trx-commit=2",  # what was committed outlives the server, if not the machine
        "--innodb-buffer-pool-size=64M",
    ]
    command = (server, "--no-defaults", *options)
    pid = launch(command, user=user, folder=folder)
    service = Service(
        name="mariadb",
        url=f"mysql://test:test@127.0.0.1:{port}/test",
        source="program",
        pids=(pid,),
        folder=str(folder),
        command=command,
        user=user,
    )
    return wait_until_ready(service, lambda: answers("127.0.0.1", port))


def answers(host: str, port: int) -> bool:
    """Whether a greeting of protocol 10 comes: it is sent only after the start-up file has been read."""
    return answer(host, port, b"")[4:5] == b"\x0a"


def program(name: str) -> str | None:
    """The server lies in /usr/sbin, which is not on everyone's PATH."""
    if path := shutil.which(name):
        return path
    candidate = Path("/usr/sbin", name)
    return str(candidate) if os.access(candidate, os.X_OK) else None
