"""What a prefork pool without an event loop needs after a child's death: a new child soon, and the queue unlocked.

Transports such as ``filesystem://`` make Celery use billiard's pool with threads. Its children share one queue, guarded
by a semaphore that an idle child holds while it waits: killed then, it leaves the queue locked to all others for ever.
"""

from __future__ import annotations

import logging
import threading
from typing import Any

from billiard.pool import RUN

PATIENCE = 20  # looks in a row that must find the queue locked and unread, before the lock is taken for a dead one's

logger = logging.getLogger(__name__)


class SharedQueue:
    """The threaded billiard pool behind Celery's; nothing is done for a pool with an event loop, which needs none."""

    def __init__(self, inner: Any) -> None:
        self._inner: Any = inner if getattr(inner, "threads", False) else None
        self._suspected = False
        self._looks = 0
        if self._inner is not None:
            self._share_maintenance()

    def tend(self, died: bool) -> None:
        """One look; ``died`` says that a child was found dead in it."""
        if self._inner is None or self._inner._state != RUN:
            return
        if died:
            self._suspected = True
            self._refill()
        if self._suspected:
            self._unlock_if_orphaned()

    def _share_maintenance(self) -> None:
        # Billiard's supervisor does this every 0.8 s; it is not made for two threads.
        lock, maintain = threading.Lock(), self._inner._maintain_pool

        def maintained() -> Any:
            with lock:
                return maintain()

        self._inner._maintain_pool = maintained

    def _refill(self) -> None:
        try:
            self._inner._maintain_pool()
        except Exception:  # children that die at once, again and again: the supervisor meets the same and acts
            logger.debug("refilling the pool failed", exc_info=True)

    def _unlock_if_orphaned(self) -> None:
        lock = self._inner._inqueue._rlock
        if not lock._semlock._is_zero():
            self._suspected, self._looks = False, 0  # somebody gave it back: nobody dead holds it
            return
        # A living holder reads at once what is there.
        self._looks = self._looks + 1 if self._inner._inqueue._reader.poll(0) else 0
        if self._looks >= PATIENCE:
            logger.warning("a pool process died holding the lock of the pool's queue; unlocking it")
            self._looks = 0
            lock.release()
