"""This process's part in a worker: under which lease it claims, how its bodies are limited.

A *seat* is taken by the worker's main process when it starts. Pool children inherit it by fork and find the lease in
force on its board. A child that was spawned inherits nothing and takes a seat, with a lease, of its own.
"""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from uuid import UUID

from billiard import current_process
from celery import signals

from durable_celery import runtime
from durable_celery.celery.board import Board, Slot
from durable_celery.celery.deadlines import Alarm, ChildGuard, NoGuard
from durable_celery.celery.lease import HeldLease
from durable_celery.engine import budget
from durable_celery.runtime import Incarnation

logger = logging.getLogger(__name__)


class Seat:
    """What the main process of a worker and its pool children share."""

    def __init__(self, *, node: str, pool: str) -> None:
        self.node = node
        self.pool = pool
        self.board = Board()
        self.alarm = Alarm()
        self.lease = HeldLease(node, self._put_on_board, self.lag)
        self.busy: Callable[[], bool] = lambda: False  # whether no child can take a message; the watch knows
        self._pid = os.getpid()
        self._told_at = time.monotonic()

    def _put_on_board(self, lease_id: UUID | None) -> None:
        self.board.lease_id = lease_id

    def lag(self) -> float:
        """Seconds by which this worker is behind, asked once a renewal.

        What is not claimed within that time is not lost but waiting its turn; sending it again would only add to the
        pile.
        """
        waited, at = self.board.last_wait
        since, self._told_at = self._told_at, time.monotonic()
        if self.busy():
            return max(waited, time.monotonic() - (at or since))
        return waited if at >= since else 0.0

    def note_wait(self, seconds: float) -> None:
        """One of our messages was taken up after so long in the broker."""
        self.board.note_wait(seconds, time.monotonic())

    def incarnation(self) -> Incarnation | None:
        """Who claims now; None while there is no lease (the database was away when the worker started)."""
        lease_id = self.board.lease_id
        return None if lease_id is None else Incarnation(lease_id=lease_id, node=self.node, pool=self.pool)

    @contextmanager
    def message(self) -> Iterator[ChildGuard | NoGuard]:
        """Hold one of our messages: the board shows it, signals do not hit engine code. Gives the guard for bodies."""
        if not self._can_be_stopped():
            yield NoGuard()
            return
        slot = self._slot()
        self.alarm.install()
        self.alarm.in_message = True
        if slot:
            slot.begin()
        try:
            with budget.watched_by(slot.deadline) if slot else nullcontext():
                yield ChildGuard(self.alarm, slot, _close_connections)
        finally:
            if slot:
                slot.end()
            self.alarm.in_message = False

    def _can_be_stopped(self) -> bool:
        return (
            self.pool == "prefork"
            and hasattr(signal, "SIGUSR1")
            and is_pool_child()
            and threading.current_thread() is threading.main_thread()
        )

    def _slot(self) -> Slot | None:
        # A child with a seat of its own has no parent that reads its board.
        if os.getpid() == self._pid:
            return None
        return self.board.slot(getattr(current_process(), "index", -1), os.getpid())


def _close_connections() -> None:
    try:
        runtime.current().store.close_connections()
    except Exception:  # it was broken off in the middle: there may be nothing left to close
        logger.debug("closing a connection that was cut short failed", exc_info=True)


_seat: Seat | None = None


def take(seat: Seat | None) -> None:
    """Make this the seat of this process and of the children it forks from now on."""
    global _seat
    _seat = seat


def taken() -> Seat | None:
    """The seat of this process; None outside a worker."""
    if _seat is None and is_pool_child():
        take(_spawned())
    return _seat


def is_pool_child() -> bool:
    """Whether this process was started by a prefork pool."""
    return getattr(current_process(), "index", None) is not None


def _spawned() -> Seat:
    seat = Seat(node=f"{current_process().name}", pool="prefork")
    seat.lease.open()
    signals.worker_process_shutdown.connect(lambda **_: seat.lease.close(), weak=False)
    return seat
