"""The watch over the children of a prefork pool: a dead one's claims are released at once, a late one is killed.

Celery finds a dead child too, but gives up its task ten seconds later. The watch looks ten times a second, without a
query: only a child that died out of order, or in one of our messages, can have left a claim.
"""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from durable_celery import sweeps
from durable_celery.celery.errands import Errands
from durable_celery.celery.seat import Seat
from durable_celery.celery.shared_queue import SharedQueue
from durable_celery.engine import deaths

EVERY = 0.1  # seconds between two looks
AGAIN = 2.0  # seconds after which a dead child's claims are looked for a second time
IN_ORDER = (0, 155)  # exit codes of a child that ended between two tasks: told to, or recycled
UNKNOWN = -1000  # stands for the exit code of a child that somebody else reaped

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Child:
    """A pool process, by its number and its place in the pool."""

    pid: int
    index: int
    process: Any


class Watch:
    """Runs in a thread of the main process from the pool's start until after its end."""

    def __init__(self, pool: Any, seat: Seat, errands: Errands, on_death: Callable[[], object] = lambda: None) -> None:
        self._pool = pool  # celery.concurrency.prefork.TaskPool
        self._on_death = on_death
        self._seat = seat
        self._errands = errands
        self._queue = SharedQueue(getattr(pool, "_pool", None))
        seat.busy = self._all_busy
        self._alive: dict[int, Child] = {}
        self._dead: set[int] = set()  # reported, and still in the pool's list
        self._killed: set[int] = set()
        self._again: list[tuple[float, int, str]] = []
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="durable-watch", daemon=True)

    def start(self) -> None:
        """Begin to look; the pool has forked its first children."""
        self._thread.start()

    def stop(self) -> None:
        """Look a last time and end."""
        self._ended.set()
        self._thread.join(2)

    def _run(self) -> None:
        last = False
        while not last:
            last = self._ended.wait(EVERY)
            try:
                self._look(time.monotonic())
            except Exception:
                logger.exception("watching the children of the pool failed; going on")

    def _all_busy(self) -> bool:
        """Whether no child can take a message now."""
        readings = [self._seat.board.read(child.index) for child in list(self._alive.values())]
        return bool(readings) and all(reading is not None and reading.busy for reading in readings)

    def _look(self, now: float) -> None:
        listed = self._listed()
        self._dead &= listed.keys()
        alive, died = {}, False
        for child in {**self._alive, **listed}.values():
            if child.pid in self._dead:
                continue
            code = exit_code(child)
            if code is None:
                alive[child.pid] = child
                self._kill_if_late(child, now)
            else:
                died = True
                self._dead.add(child.pid)
                self._report(child, code, now)
        self._alive = alive
        if died:
            self._on_death()
        self._queue.tend(died)
        self._look_again(now)

    def _listed(self) -> dict[int, Child]:
        processes = list(getattr(getattr(self._pool, "_pool", None), "_pool", None) or ())
        return {p.pid: Child(pid=p.pid, index=p.index, process=p) for p in processes if p.pid is not None}

    def _report(self, child: Child, code: int, now: float) -> None:
        reading = self._seat.board.read(child.index)
        busy = reading is not None and reading.pid == child.pid and reading.busy
        if code in IN_ORDER and not busy:
            return
        reason = f"pool process {child.pid} of {self._seat.node} {ending(code)}"
        if child.pid in self._killed:
            self._killed.discard(child.pid)
            reason = f"{reason}: it went on after its time was up"
        elif busy and reading is not None and (instance := reading.instance) is not None:
            self._errands.add(reason, lambda: deaths.note(instance, reason))
        self._release(child.pid, reason)
        # The database may commit a claim that the child had sent before it died after we have looked.
        self._again.append((now + AGAIN, child.pid, reason))

    def _look_again(self, now: float) -> None:
        while self._again and self._again[0][0] <= now:
            _, pid, reason = self._again.pop(0)
            self._release(pid, reason)

    def _release(self, pid: int, reason: str) -> None:
        lease_id = self._seat.board.lease_id
        if lease_id is not None:
            self._errands.add(reason, lambda: sweeps.release(lease_id, pid, reason=reason))

    def _kill_if_late(self, child: Child, now: float) -> None:
        reading = self._seat.board.read(child.index)
        if reading is None or reading.pid != child.pid or not 0 < reading.deadline < now or child.pid in self._killed:
            return
        what = "step" if reading.instance is None else f"turn of instance {reading.instance}"
        logger.warning("killing pool process %s: its %s went on after its time was up", child.pid, what)
        self._killed.add(child.pid)
        os.kill(child.pid, signal.SIGKILL)
        if (instance := reading.instance) is not None:
            self._errands.add(f"blocking instance {instance}", lambda: deaths.block_endless(instance))


def exit_code(child: Child) -> int | None:
    """How the process ended, as ``Process.exitcode`` says it, without reaping it; None while it runs."""
    if not hasattr(os, "waitid"):  # macOS
        code: int | None = child.process.exitcode
        return code
    try:
        found = os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        reaped: int | None = child.process.exitcode
        return UNKNOWN if reaped is None else reaped
    if found is None:
        return None
    return found.si_status if found.si_code == os.CLD_EXITED else -found.si_status


def ending(code: int) -> str:
    """``was killed by SIGKILL``, ``ended with exit code 1``."""
    if code == UNKNOWN:
        return "is gone"
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        return f"was killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"was killed by signal {-code}"
