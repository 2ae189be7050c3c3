"""Database work that the main process's threads hand over, so that they can go on: in order, each until it is done."""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable

from durable_celery.celery.gate import gate
from durable_celery.celery.quiet import Sparing

RETRY = 0.5  # seconds until a failed errand is tried again

logger = logging.getLogger(__name__)

Errand = Callable[[], object]


class Errands:
    """One thread and its list of things to do."""

    def __init__(self) -> None:
        self._queue: queue.Queue[tuple[str, Errand] | None] = queue.Queue()
        self._ended = threading.Event()
        self._complain = Sparing(logger)
        self._thread = threading.Thread(target=self._run, name="durable-errands", daemon=True)

    def start(self) -> None:
        """Begin to work them off."""
        self._thread.start()

    def add(self, what: str, errand: Errand) -> None:
        """Have ``errand`` done as soon as possible, and again until it does not raise. ``what`` is for the log."""
        self._queue.put((what, errand))

    def finish(self, patience: float) -> None:
        """Work off what is there, for at most ``patience`` seconds; what is left is found by the tick."""
        self._queue.put(None)
        self._thread.join(patience)
        self._ended.set()

    def _run(self) -> None:
        while True:
            item = self._queue.get()
            if item is None:
                return
            self._do(*item)

    def _do(self, what: str, errand: Errand) -> None:
        while not self._ended.is_set():
            try:
                began = time.monotonic()
                with gate.database():
                    errand()
                logger.debug("%s: done in %.3f s", what, time.monotonic() - began)
                return
            except Exception as error:
                self._complain.warning("%s: %s: %s; tried again", what, type(error).__name__, error)
                self._ended.wait(RETRY)
