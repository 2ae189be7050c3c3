"""Where the threads of a worker's main process go through to the database: one at a time, and never across a fork.

One at a time keeps a worker at its pool's children plus one connection. A fork waits until nobody is inside, so that no
child inherits a socket in use. Both are courtesies with a limit: a database that hangs must neither stop the renewal of
the lease nor the refilling of the pool.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from durable_celery import runtime

PATIENCE = 1.5  # seconds to wait for another thread
FORK_PATIENCE = 2.0  # seconds a fork waits

logger = logging.getLogger(__name__)


class Gate:
    """The one gate of this process."""

    def __init__(self) -> None:
        self._watched = False
        self._reset()

    def _reset(self) -> None:
        self._condition = threading.Condition()
        self._inside: list[int] = []  # thread ids
        self._forking = False

    @contextmanager
    def database(self) -> Iterator[None]:
        """Use the database from a thread of the main process; its connections are closed at the end."""
        me = threading.get_ident()
        with self._condition:
            self._condition.wait_for(lambda: not self._forking and not self._inside, PATIENCE)
            self._inside.append(me)
        try:
            yield
        finally:
            try:
                runtime.current().store.close_connections()
            except Exception:
                logger.debug("closing a connection failed", exc_info=True)
            with self._condition:
                self._inside.remove(me)
                self._condition.notify_all()

    def watch_forks(self) -> None:
        """Make forks of this process wait, from now on."""
        if not self._watched and hasattr(os, "register_at_fork"):
            self._watched = True
            os.register_at_fork(before=self._before, after_in_parent=self._after_in_parent, after_in_child=self._reset)

    def _before(self) -> None:
        me = threading.get_ident()
        with self._condition:
            self._condition.wait_for(lambda: all(thread == me for thread in self._inside), FORK_PATIENCE)
            self._forking = True

    def _after_in_parent(self) -> None:
        with self._condition:
            self._forking = False
            self._condition.notify_all()


gate = Gate()
