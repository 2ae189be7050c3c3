"""The worker and Beat as real processes, and the ways they die."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

PROJECT_DIR = Path(__file__).resolve().parent.parent
CELERY = (sys.executable, "-m", "celery", "-A", "project")
WORKER = (*CELERY, "worker", "--concurrency", "2", "--hostname", "shop@%h", "--loglevel", "info")
BEAT = (*CELERY, "beat", "--pidfile=", "--loglevel", "info")


class Process:
    """One command, started in a process group of its own, as often as it takes. Its output is appended to ``log``."""

    def __init__(self, name: str, command: tuple[str, ...], log: Path) -> None:
        self.name = name
        self.log = log
        self._command = command
        self._running: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        if self._running is None:
            raise RuntimeError(f"{self.name} is not started")
        return self._running.pid

    @property
    def started(self) -> bool:
        return self._running is not None

    def start(self) -> None:
        with self.log.open("ab") as log:
            self._running = subprocess.Popen(
                self._command,
                cwd=PROJECT_DIR,
                env=os.environ | {"DJANGO_SETTINGS_MODULE": "project.settings"},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def died(self) -> int | None:
        """The exit status of a process that ended by itself, else ``None``."""
        return self._running.poll() if self._running else None

    def kill(self, when: Callable[[], bool] = lambda: True) -> bool:
        """SIGKILL the whole group, if ``when`` holds while the group is frozen; else let it go on and say ``False``."""
        group = self.pid
        os.killpg(group, signal.SIGSTOP)
        if not when():
            os.killpg(group, signal.SIGCONT)
            return False
        os.killpg(group, signal.SIGKILL)
        self._wait()
        return True

    def kill_child(self, when: Callable[[], bool]) -> bool:
        """SIGKILL one child, if ``when`` holds while all children are frozen; else let them go on and say ``False``."""
        children = children_of(self.pid)
        _send(children, signal.SIGSTOP)
        chosen = children[:1] if when() else []
        _send(chosen, signal.SIGKILL)
        _send(children[len(chosen) :], signal.SIGCONT)
        return bool(chosen)

    def stop(self, patience: float = 10) -> None:
        """End it as an operator would; SIGKILL after ``patience`` seconds."""
        if self._running is None:
            return
        self._running.terminate()
        try:
            self._running.wait(patience)
        except subprocess.TimeoutExpired:
            pass
        try:
            os.killpg(self._running.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self._wait()

    def _wait(self) -> None:
        if self._running is not None:
            self._running.wait()
            self._running = None


def children_of(pid: int) -> list[int]:
    """Process ids of the direct children, oldest first; from /proc where there is one, else from ``ps``."""
    pairs = _proc_table() if Path("/proc/self/stat").exists() else _ps_table()
    return sorted(child for child, parent in pairs if parent == pid)


def _proc_table() -> list[tuple[int, int]]:
    table = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            stat = (entry / "stat").read_text()
        except OSError:  # ended between the listing and the reading
            continue
        # The name in the second field may hold anything, also spaces and brackets: count from its last bracket.
        parent = stat.rpartition(")")[2].split()[1]
        table.append((int(entry.name), int(parent)))
    return table


def _ps_table() -> list[tuple[int, int]]:
    listing = subprocess.run(["ps", "-A", "-o", "pid=,ppid="], capture_output=True, text=True, check=True).stdout
    return [(int(pid), int(parent)) for pid, parent in map(str.split, listing.splitlines())]


def _send(pids: list[int], number: signal.Signals) -> None:
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            continue
