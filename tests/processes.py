"""Real Celery processes for tests that start, stop and kill them; the fixture `start_worker` ends what is left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import psutil

ROOT = Path(__file__).parents[1]


def eventually(condition: Callable[[], object], what: str, *, seconds: float = 30, every: float = 0.05) -> None:
    """Poll until `condition()` is true; after `seconds` the test fails, saying `what` never came."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds} s: {what}"
        time.sleep(every)


@dataclass(kw_only=True)
class Worker:
    """One `celery worker` (or `celery beat`): its main process and what it has logged so far."""

    process: subprocess.Popen[bytes]
    log: Path
    known: set[int] = field(default_factory=set)

    @property
    def pid(self) -> int:
        return self.process.pid

    def text(self) -> str:
        return self.log.read_text(errors="replace")

    def children(self) -> list[int]:
        """The processes of its pool that run now, oldest first."""
        found = children_of(self.pid)
        self.known.update(found)
        return found

    def wait_until_ready(self, *, seconds: float = 60) -> Worker:
        eventually(lambda: " ready." in self.text() or self.ended(), "a worker that is ready", seconds=seconds)
        assert not self.ended(), self.text()
        self.children()
        return self

    def ended(self) -> bool:
        return self.process.poll() is not None

    def kill(self) -> None:
        """SIGKILL to the main process and its pool at once, as the kernel or a container does it."""
        doomed = [self.pid, *self.children()]
        for pid in doomed:
            signal_to(pid, signal.SIGKILL)
        self.process.wait(timeout=30)
        eventually(lambda: not any(runs(pid) for pid in doomed), "the end of a killed worker")

    def kill_main(self) -> None:
        """SIGKILL to the main process alone: its pool goes on until it notices."""
        self.children()
        signal_to(self.pid, signal.SIGKILL)
        self.process.wait(timeout=30)

    def kill_child(self, pid: int | None = None) -> int:
        """SIGKILL to one process of the pool, the oldest by default; returns its id."""
        victim = pid or self.children()[0]
        signal_to(victim, signal.SIGKILL)
        return victim

    def stop(self, *, seconds: float = 30) -> int:
        """Warm shutdown (SIGTERM): running tasks end first. Returns the exit status."""
        signal_to(self.pid, signal.SIGTERM)
        return self.process.wait(timeout=seconds)

    def clear(self) -> None:
        """End everything that is left of it, whatever the test did."""
        doomed = {self.pid, *self.children(), *self.known} if not self.ended() else set(self.known)
        for pid in doomed:
            if runs(pid) and group_of(pid) == self.pid:
                signal_to(pid, signal.SIGKILL)
        self.process.wait(timeout=30)


def start_worker(
    log: Path,
    *,
    arguments: Iterable[str] = (),
    pool: str = "prefork",
    concurrency: int = 2,
    beat: bool = False,
    env: Mapping[str, str] | None = None,
) -> Worker:
    """Start a worker of the tests' project, with this process's database and broker; ready or not.

    `env` is added to the environment: `{"TEST_DURABLE_CELERY": '{"LEASE": 2}'}`. `beat` embeds Beat (-B).
    """
    options = [f"--pool={pool}", f"--concurrency={concurrency}", "--loglevel=INFO", *(["-B"] if beat else [])]
    return start(["worker", *options, *arguments], log, env=env)


def start_beat(log: Path, *, arguments: Iterable[str] = (), env: Mapping[str, str] | None = None) -> Worker:
    pid_file = log.with_suffix(".pid")
    return start(["beat", f"--pidfile={pid_file}", "--loglevel=INFO", *arguments], log, env=env)


def start(command: list[str], log: Path, *, env: Mapping[str, str] | None) -> Worker:
    with log.open("ab") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "celery", "-A", "tests.project", *command],
            cwd=ROOT,
            env={**os.environ, "C_FORCE_ROOT": "1", "PYTHONUNBUFFERED": "1", **(env or {})},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    return Worker(process=process, log=log)


def children_of(parent: int) -> list[int]:
    """All descendants that run, as a child may have forked; oldest first."""
    try:
        found = psutil.Process(parent).children(recursive=True)
    except psutil.NoSuchProcess:
        return []
    return sorted(child.pid for child in found if runs(child.pid))


def runs(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def group_of(pid: int) -> int:
    try:
        return os.getpgid(pid)
    except ProcessLookupError:
        return -1


def signal_to(pid: int, number: signal.Signals) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass
