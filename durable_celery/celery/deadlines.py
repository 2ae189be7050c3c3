"""Stopping a step body that runs longer than its attempt may, in a child of the prefork pool.

The soft limit comes from a timer thread in the child: it sends SIGUSR1 to the main thread, whose handler raises
``SoftTimeLimitExceeded`` in the body. The hard limit, 3 s later, is on the board: the main process kills the child.

Rules of this file:
- The handler raises only while the attempt whose time is up is in its body. In engine code it does nothing, whoever
  sent the signal: a project's global ``task_soft_time_limit`` must not hit a turn. Outside our messages it is Celery's.
- The main thread takes no lock here, so no signal finds one half taken.
"""

from __future__ import annotations

import math
import os
import queue
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from celery.exceptions import SoftTimeLimitExceeded, WorkerTerminate

from durable_celery.celery.board import Slot
from durable_celery.threads import start_deaf

GRACE = 3.0  # seconds from the soft limit to the kill


class NoGuard:
    """Pools whose bodies cannot be stopped (solo, threads, gevent): a late result is dropped by its token."""

    fired = False
    own_process = True

    @contextmanager
    def limit(self, seconds: float | None, token: str) -> Iterator[None]:  # noqa: ARG002
        """Limit nothing."""
        yield

    @contextmanager
    def limits(self, soft: float | None, hard: float | None, token: str) -> Iterator[None]:  # noqa: ARG002
        """Limit nothing."""
        yield


class ChildGuard:
    """Limits the bodies that run in one message. ``fired`` says that the last one was interrupted.

    ``on_fired`` is called then, after the body: a connection it was using may be in the middle of a query for good.
    """

    own_process = False

    def __init__(self, alarm: Alarm, slot: Slot | None, on_fired: Callable[[], object] = lambda: None) -> None:
        self._alarm = alarm
        self._slot = slot
        self._on_fired = on_fired
        self.fired = False

    @contextmanager
    def limit(self, seconds: float | None, token: str) -> Iterator[None]:
        """Raise ``SoftTimeLimitExceeded`` in the block after ``seconds``; ``GRACE`` later the process is killed."""
        with self.limits(seconds, None if seconds is None else seconds + GRACE, token):
            yield

    @contextmanager
    def limits(self, soft: float | None, hard: float | None, token: str) -> Iterator[None]:
        """Raise ``SoftTimeLimitExceeded`` in the block after ``soft`` seconds, kill the process after ``hard``."""
        self.fired = False
        now = time.monotonic()
        if self._slot and hard is not None:
            self._slot.deadline(now + hard)
        armed = None if soft is None else _Armed(self, token, now + soft)
        # Twice, since the signal may strike in the first ``finally``; it strikes once only.
        try:
            try:
                if armed is not None:
                    self._alarm.arm(armed)
                yield
            except SystemExit as error:
                if _is_shutdown(error.code):
                    raise WorkerTerminate(error.code) from error
                raise
            finally:
                self._disarm()
        finally:
            self._disarm()
            if self.fired:
                self._on_fired()

    def _disarm(self) -> None:
        self._alarm.disarm()
        if self._slot:
            self._slot.deadline(0.0)


def _is_shutdown(code: object) -> bool:
    """Whether this is billiard's exit on a signal (SIGTERM of a cold shutdown), and no ``sys.exit()`` of the body.

    Taken for the body's, the child would go on, and the shutdown wait for it.
    """
    return isinstance(code, int) and -256 < code < -256 + signal.NSIG


class _Armed:
    """One body in one attempt, and when its time is up."""

    __slots__ = ("deadline", "guard", "rung", "token")

    def __init__(self, guard: ChildGuard, token: str, deadline: float) -> None:
        self.guard = guard
        self.token = token
        self.deadline = deadline
        self.rung = False


class Alarm:
    """The timer thread and the signal handler of one child: one thread, however many attempts run."""

    def __init__(self) -> None:
        self.in_message = False
        self._armed: _Armed | None = None
        self._ringing: _Armed | None = None
        self._bell: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._wakes_at = math.inf
        self._thread: threading.Thread | None = None
        self._pid = 0
        self._previous: Any = signal.SIG_DFL

    def install(self) -> None:
        """Take SIGUSR1 over, once a process, at the first message: billiard sets it after ``worker_process_init``."""
        if self._pid != os.getpid():
            self._pid = os.getpid()
            self._thread = self._armed = self._ringing = None
            self._previous = signal.signal(signal.SIGUSR1, self._on_signal)

    def arm(self, armed: _Armed) -> None:
        """Ring at ``armed.deadline``. Wakes the thread only if it would look too late."""
        self._armed = armed
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="durable-deadlines", daemon=True)
            start_deaf(self._thread)
        elif armed.deadline < self._wakes_at:
            self._bell.put(None)

    def disarm(self) -> None:
        """Do not ring any more; a signal that is under way finds nothing armed."""
        self._armed = None

    def _run(self) -> None:
        target = threading.main_thread().ident
        assert target is not None
        while True:
            # First "wake me for anything", then look: whoever arms after the look sees it and rings the bell.
            self._wakes_at = math.inf
            armed = self._armed
            wait: float | None = None
            if armed is not None and not armed.rung:
                wait = armed.deadline - time.monotonic()
                if wait <= 0:
                    armed.rung = True
                    self._ringing = armed
                    signal.pthread_kill(target, signal.SIGUSR1)
                    continue
                self._wakes_at = armed.deadline
            try:
                self._bell.get(timeout=wait)
            except queue.Empty:
                continue

    def _on_signal(self, signum: int, frame: FrameType | None) -> None:
        ringing, self._ringing = self._ringing, None
        if ringing is not None:
            if ringing is self._armed:
                self._armed = None
                ringing.guard.fired = True
                raise SoftTimeLimitExceeded()
        elif not self.in_message and callable(self._previous):
            self._previous(signum, frame)
