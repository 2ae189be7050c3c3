"""Who a process is, and the lease by which it says that it is alive.

A lease belongs to one incarnation of one process, never to a worker's name: two live workers may share a name. It is
renewed by the main process for its children. One that was declared dead is never renewed: the process takes a new one.
"""

from __future__ import annotations

import logging
import os
import threading
import uuid
from collections.abc import Callable
from pathlib import Path
from uuid import UUID

from durable_celery import faults, runtime
from durable_celery.celery.gate import gate
from durable_celery.celery.quiet import Sparing
from durable_celery.engine import fleet
from durable_celery.ports import Lease

logger = logging.getLogger(__name__)


class HeldLease:
    """The lease of this process. ``on_change`` is told each new id (None: none) before anything is claimed under it."""

    def __init__(
        self, node: str, on_change: Callable[[UUID | None], None], lag: Callable[[], float] = lambda: 0.0
    ) -> None:
        self.node = node
        self.id: UUID | None = None
        self.queues: Callable[[], str] = str  # what the worker consumes, one a line
        self._on_change = on_change
        self._lag = lag
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None
        self._complain = Sparing(logger)

    def open(self) -> None:
        """Take a lease now, and keep one until ``close``; if the database is away, as soon as it is back."""
        self._ended.clear()
        self._try_to_keep()
        self._thread = threading.Thread(target=self._run, name="durable-lease", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Give the lease back: this process claims nothing any more, and nothing it claimed is running."""
        self._ended.set()
        if self._thread is not None:
            self._thread.join(5)
        lease_id, self.id = self.id, None
        self._on_change(None)
        if lease_id is not None:
            with gate.database():
                runtime.current().store.close_lease(lease_id)

    def _run(self) -> None:
        kept = True
        while not self._ended.wait(self._pause(kept)):
            kept = self._try_to_keep()

    def _pause(self, kept: bool) -> float:
        third = runtime.current().settings.lease.total_seconds() / 3
        return third if kept and self.id is not None else min(third, 1.0)

    def _try_to_keep(self) -> bool:
        try:
            with gate.database():
                self._keep()
        except Exception as error:
            self._complain.warning(
                "%s cannot %s its lease: %s: %s. It claims no new steps until it can; it tries again every second.",
                self.node,
                "take" if self.id is None else "renew",
                type(error).__name__,
                error,
            )
            return False
        self._complain.fine("%s holds its lease again.", self.node)
        return True

    def _keep(self) -> None:
        faults.reach("lease.before_renewal")
        parts = runtime.current()
        parts.clock.measure()
        expires_at = parts.clock.now() + parts.settings.lease
        if self.id is not None and parts.store.renew_lease(self.id, expires_at, lag=self._lag()):
            logger.debug("lease %s renewed until %s", self.id, expires_at)
            faults.reach("lease.after_renewal")
            return
        if self.id is not None:
            logger.warning(
                "%s was declared dead: its lease %s had run out (the process, machine or database stood still). "
                "What it was running is given to others and its results are dropped; it goes on under a new lease.",
                self.node,
                self.id,
            )
        lease_id = uuid.uuid4()
        parts.store.open_lease(
            Lease(
                id=lease_id,
                node=self.node,
                boot_id=boot_id(),
                pid_ns=pid_namespace(),
                pid=os.getpid(),
                start_ticks=start_ticks(os.getpid()) or 0,
                expires_at=expires_at,
                queues=self.queues(),
                code=fleet.announcement(),
            )
        )
        self.id = lease_id
        self._on_change(lease_id)
        faults.reach("lease.after_renewal")


# -- what the kernel says ------------------------------------------------------------------------------------------


def boot_id() -> str:
    """This boot of this machine; "" where the kernel does not say, and then nobody judges by process numbers."""
    return _read("/proc/sys/kernel/random/boot_id").strip()


def pid_namespace() -> str:
    """The namespace in which this process's numbers mean something; containers have their own."""
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return ""


def start_ticks(pid: int) -> int | None:
    """When the process of this number started, in clock ticks since boot; None if there is none, or only a zombie."""
    fields = _read(f"/proc/{pid}/stat").rpartition(")")[2].split()
    if len(fields) < 20 or fields[0] in ("Z", "X", "x"):
        return None
    return int(fields[19])


def alive(pid: int, ticks: int) -> bool:
    """Whether that very process runs on; its number may be another's by now. True where nobody can tell."""
    if not boot_id():
        return True
    return start_ticks(pid) == ticks


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
