"""A running service, and how a private one is started and stopped."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypedDict
from urllib.parse import urlsplit


class Identity(TypedDict, total=False):
    """Whom a process runs as, in the words of `subprocess`; empty: as this one."""

    user: str
    group: int
    extra_groups: list[str]


class ServiceError(RuntimeError):
    """A service was found but does not answer or does not start."""


@dataclass(frozen=True, kw_only=True)
class Service:
    """Where a service listens, and what to end when it is no longer needed.

    `source` is "environment", "program" or "wheel"; only the last two have processes and a folder of their own.
    The first process is the server's, by `command`, as `user`.
    """

    name: str
    url: str
    source: str
    pids: tuple[int, ...] = ()
    folder: str | None = None
    command: tuple[str, ...] = ()
    user: str | None = None
    env: Mapping[str, str] = field(default_factory=dict)

    def halt(self, number: signal.Signals = signal.SIGKILL, *, patience: float = 20) -> None:
        """End the server alone, in the way of `number`; its folder, and with it what it keeps on disk, stays."""
        end(self.pids[0], patience=patience, first=number)

    def relaunch(self) -> Service:
        """Start the halted server again over its folder, ready or not. The service as it is from now on."""
        pid = launch(self.command, user=self.user, folder=Path(self.folder or "."), env=self.env)
        return replace(self, pids=(pid, *self.pids[1:]))

    def stop(self) -> None:
        """End the processes, remove the folder. A service of the environment is left alone; a second call is fine."""
        for pid in self.pids:
            end(pid)
        if self.folder is not None:
            shutil.rmtree(self.folder, ignore_errors=True)


def from_environment(name: str, answers: Callable[[str, int], bool]) -> Service | None:
    """The service of `TEST_<NAME>_URL`, or None if that is not set. Set and silent is an error, never a skip."""
    variable = f"TEST_{name.upper()}_URL"
    url = os.environ.get(variable)
    if not url:
        return None
    address = urlsplit(url)
    host, port = address.hostname or "localhost", address.port
    if port is not None and not answers(host, port):
        raise ServiceError(f"{variable} names {host}:{port}, where no {name} answers. Start it or unset {variable}.")
    return Service(name=name, url=url, source="environment")


def private_folder(name: str, user: str | None) -> Path:
    """A new folder that `user` (None: this user) owns and nobody else can read."""
    folder = Path(tempfile.mkdtemp(prefix=f"durable-{name}-"))
    if user is not None:
        entry = pwd.getpwnam(user)
        os.chown(folder, entry.pw_uid, entry.pw_gid)
    return folder


def unprivileged(*preferred: str) -> str | None:
    """The first existing user of `preferred` or `nobody` if this process is root, else None: stay who we are."""
    if os.geteuid() != 0:
        return None
    known = {entry.pw_name for entry in pwd.getpwall()}
    return next(user for user in (*preferred, "nobody") if user in known)


def run(command: Sequence[str], *, user: str | None, folder: Path, env: Mapping[str, str] | None = None) -> None:
    """Run a command to its end in the new `folder`; a failure removes that and raises with what was printed."""
    done = subprocess.run(command, cwd=folder, env=clean(env), capture_output=True, text=True, **identity(user))
    if done.returncode != 0:
        shutil.rmtree(folder, ignore_errors=True)
        raise ServiceError(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout}{done.stderr}")


def launch(command: Sequence[str], *, user: str | None, folder: Path, env: Mapping[str, str] | None = None) -> int:
    """Start a command in a session of its own, output to `folder/log`, and return its process id."""
    with open(folder / "log", "ab") as log:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env=clean(env),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            **identity(user),
        )
    process.returncode = 0  # Ended by `end`, perhaps in another process: no ResourceWarning for what runs on.
    return process.pid


def wait_until_ready(service: Service, ready: Callable[[], bool], *, seconds: float = 60) -> Service:
    """Poll until a just started service answers; if it ends or stays silent, stop it and raise with its log's end."""
    deadline = time.monotonic() + seconds
    while not ready():
        if time.monotonic() > deadline or not alive(service.pids[0]):
            log = Path(service.folder or ".", "log")
            tail = log.read_text(errors="replace")[-3000:] if log.exists() else ""
            service.stop()
            raise ServiceError(f"{service.name} did not start within {seconds} s. The end of its log:\n{tail}")
        time.sleep(0.05)
    return service


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def answer(host: str, port: int, question: bytes, size: int = 64) -> bytes:
    """The first bytes a server says after `question`; empty if nobody listens or it says nothing for two seconds."""
    try:
        with socket.create_connection((host, port), timeout=2) as connection:
            connection.sendall(question)
            return connection.recv(size)
    except OSError:
        return b""


def end(pid: int, *, patience: float = 20, first: signal.Signals = signal.SIGTERM) -> None:
    """`first` to the process group of `pid`, and SIGKILL if it is still there after `patience` seconds."""
    for number in (first, signal.SIGKILL):
        try:
            os.killpg(pid, number)
        except (ProcessLookupError, PermissionError):
            return
        deadline = time.monotonic() + patience
        while time.monotonic() < deadline:
            if not alive(pid):
                return
            time.sleep(0.05)


def alive(pid: int) -> bool:
    """Whether `pid` still runs. A zombie does not: it may be the child of somebody who never looks."""
    try:
        os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        pass
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return not Path("/proc/self").exists()


def clean(env: Mapping[str, str] | None) -> dict[str, str]:
    return {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C.UTF-8", **(env or {})}


def identity(user: str | None) -> Identity:
    if user is None:
        return {}
    return {"user": user, "group": pwd.getpwnam(user).pw_gid, "extra_groups": []}
