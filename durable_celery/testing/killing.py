"""A crash that is one: a process of its own is killed at the point, another goes on with the database it has left.

Both are forked from the test, so that they know what it knows: its workflows, mocks and functions. Each run has copies
of the databases to itself, which the test made before the first.
"""

from __future__ import annotations

import json
import os
import pickle
import shutil
import signal
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from durable_celery import sweeps
from durable_celery.celery import lease as leases
from durable_celery.engine import fleet
from durable_celery.errors import UsageError
from durable_celery.ports import Lease
from durable_celery.testing.comparing import Effect, Seen
from durable_celery.testing.dying import LONG, Process, installed
from durable_celery.testing.reports import Point

if TYPE_CHECKING:
    from durable_celery.testing.harness import Harness

PATIENCE = 120.0  # seconds for one process

Play = Callable[[Process], Seen]


@contextmanager
def killed(harness: Harness, play: Play) -> Iterator[Callable[[Point], Seen | None]]:
    """A function that runs it in a process killed at a point, then on in another; None if that was not reached."""
    if not hasattr(os, "fork") or not leases.boot_id():
        raise UsageError("crash_everywhere(real=True) needs fork() and /proc, such as Linux has; leave it out here")
    with tempfile.TemporaryDirectory(prefix="durable-crash-") as name:
        master = Path(name, "master")
        master.mkdir()
        harness._store.copy_databases(master)

        def crashed(point: Point) -> Seen | None:
            with tempfile.TemporaryDirectory(dir=name) as own:
                return _crashed(harness, play, point, Files(Path(own), master))

        yield crashed


def _crashed(harness: Harness, play: Play, point: Point, files: Files) -> Seen | None:
    if not _fork(files, lambda: _die_there(harness, play, point, files)):
        return None
    if _fork(files, lambda: _go_on(harness, play, files)):
        raise AssertionError(f"crash_everywhere: after a crash at {point} the process that went on was killed, too")
    seen: Seen = pickle.loads(files.seen.read_bytes())
    return seen


class Files:
    """What the two processes and the test share."""

    def __init__(self, folder: Path, master: Path) -> None:
        self.databases = folder / "databases"
        self.log = folder / "log"
        self.seen = folder / "seen"
        self.error = folder / "error"
        shutil.copytree(master, self.databases)

    def note(self, what: str, value: Any) -> None:
        """Keep this, whatever becomes of this process."""
        with self.log.open("ab", buffering=0) as log:
            log.write(json.dumps([what, value]).encode() + b"\n")

    def noted(self, what: str) -> list[Any]:
        """What was kept."""
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        return [value for kind, value in map(json.loads, lines) if kind == what]


class KilledProcess(Process):
    """A process of the kernel's; what it counts outlives it."""

    def __init__(self, harness: Harness, files: Files, **target: Any) -> None:
        super().__init__(harness, **target)
        self._files = files

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """Around a message, a tick or what the outside does."""
        self._files.note("at", self._harness.now.isoformat())
        with super().at_work():
            yield

    def note_begun(self, effect: Effect) -> None:
        """A body begins."""
        self._files.note("begun", effect)

    def note_kept(self, effect: Effect) -> None:
        """A transaction with a body in it is committed."""
        self._files.note("kept", effect)

    def counted(self) -> None:
        """Count what this process and the one before it have noted."""
        for what, counter in (("begun", self.begun), ("kept", self.kept)):
            counter.update(tuple(effect) for effect in self._files.noted(what))

    def new_lease(self) -> Lease:
        """Who it is."""
        pid = os.getpid()
        return Lease(
            id=uuid4(), node="test", boot_id=leases.boot_id(), pid_ns=leases.pid_namespace(), pid=pid,
            start_ticks=leases.start_ticks(pid) or 0, code=fleet.announcement(),
            expires_at=self._harness.now + LONG,
        )  # fmt: skip


# -- the two processes -------------------------------------------------------------------------------------------------


def _die_there(harness: Harness, play: Play, point: Point, files: Files) -> None:
    process = KilledProcess(harness, files, target=point, die=lambda: os.kill(os.getpid(), signal.SIGKILL))
    harness._store.use_copies(files.databases)
    with installed(harness, process, harness.now):
        play(process)


def _go_on(harness: Harness, play: Play, files: Files) -> None:
    process = KilledProcess(harness, files, target=Point(name="", nth=0))
    process.died = True  # the one before it
    harness._store.use_copies(files.databases)
    with installed(harness, process, datetime.fromisoformat(files.noted("at")[-1])):
        sweeps.bury_vanished(leases.boot_id(), leases.pid_namespace(), leases.alive)
        files.seen.write_bytes(pickle.dumps(play(process)))


def _fork(files: Files, run: Callable[[], None]) -> bool:
    """Run it in a child; whether that was killed."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # other threads of the test do not matter to the child
        child = os.fork()
    if child == 0:
        try:
            run()
        except BaseException:  # noqa: BLE001 - nothing of this process may go on with the test
            files.error.write_text(traceback.format_exc())
        finally:
            os._exit(0)
    status = _ended(child)
    if files.error.exists():
        raise AssertionError(f"crash_everywhere: a process failed:\n{files.error.read_text()}")
    return os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL


def _ended(child: int) -> int:
    give_up_at = time.monotonic() + PATIENCE
    pause = 0.001
    while time.monotonic() < give_up_at:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            return status
        time.sleep(pause)
        pause = min(pause * 2, 0.05)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    raise AssertionError(f"crash_everywhere: a process had not ended after {PATIENCE:g} s, and was killed")
