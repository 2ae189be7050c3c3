"""What is not said every second: log lines of the tick, and a complaint that has been made already."""

from __future__ import annotations

import logging
import time
from typing import Any

TICK = "durable_celery.tick"
PURGE = "durable_celery.purge"
EVERY = 60.0  # seconds between two complaints about the same thing
CHATTY = ("celery.beat", "celery.worker.strategy", "celery.worker.request", "celery.app.trace")


class TickFilter(logging.Filter):
    """Celery's own lines about the tick, made DEBUG lines."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Let everything through but an INFO line about the tick, where DEBUG is not wanted."""
        if record.levelno != logging.INFO or not _is_about_the_tick(record.args):
            return True
        record.levelno, record.levelname = logging.DEBUG, "DEBUG"
        return logging.getLogger(record.name).isEnabledFor(logging.DEBUG)


def hush_the_tick() -> None:
    """Put the filter on the loggers in question; again does nothing."""
    for name in CHATTY:
        logger = logging.getLogger(name)
        if not any(isinstance(one, TickFilter) for one in logger.filters):
            logger.addFilter(TickFilter())


def _is_about_the_tick(args: Any) -> bool:
    if isinstance(args, dict):
        return args.get("name") == TICK
    return isinstance(args, tuple) and TICK in args


class Sparing:
    """Says that something is wrong once a minute, and once that it is over."""

    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger
        self._said_at: float | None = None

    def warning(self, text: str, *args: Any) -> None:
        """Something is wrong."""
        now = time.monotonic()
        if self._said_at is None or now - self._said_at >= EVERY:
            self._said_at = now
            self._logger.warning(text, *args)

    def fine(self, text: str, *args: Any) -> None:
        """It is over; said only if it had been said that it was wrong."""
        if self._said_at is not None:
            self._said_at = None
            self._logger.info(text, *args)
