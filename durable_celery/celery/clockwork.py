"""The tick in a worker's main process: due timers and retries, dead workers' claims, everything the clock must do.

Beat sends the same tick as a task; but a tick that waits in a queue behind a backlog comes too late, and a dead Beat
sends none. Of all processes that tick, one wins each interval.
"""

from __future__ import annotations

import logging
import threading
import time

from durable_celery import runtime, sweeps
from durable_celery.celery import lease
from durable_celery.celery.gate import gate
from durable_celery.celery.quiet import Sparing
from durable_celery.celery.sockets import within

PATIENCE = 10.0  # seconds for one tick's publishing: who starts a workflow cannot wait for a slow broker, the tick can
SHORTEST = 0.05  # seconds between two looks at least
ALMOST = 0.85  # share of an interval in which its winner may look early; then the interval is anybody's

logger = logging.getLogger(__name__)


class Clockwork:
    """The thread; outlives every error, an outage of the database included.

    Whoever won the last interval also looks when something falls due within it; the others leave that to it.
    """

    def __init__(self, node: str) -> None:
        self._node = node
        self._ended = threading.Event()
        self._mine_until = 0.0  # time.monotonic() up to which this process may look early
        self._complain = Sparing(logger)
        self._thread = threading.Thread(target=self._run, name="durable-clockwork", daemon=True)

    def start(self) -> None:
        """Tick at once, and then every ``TICK`` or when something falls due."""
        self._thread.start()

    def stop(self) -> None:
        """Tick no more; waits for one that is under way."""
        self._ended.set()
        self._thread.join(5)

    def _run(self) -> None:
        wait = 0.0
        while not self._ended.wait(wait):
            wait = self._look()

    def _look(self) -> float:
        """Do what is due; returns in how many seconds to look again."""
        tick = runtime.current().settings.tick.total_seconds()
        try:
            with gate.database(), within(PATIENCE):
                wait = self._tick(tick)
        except Exception as error:
            self._complain.warning(
                "the tick failed: %s: %s. Timers, retries and recovery wait; it tries again every %g s.",
                type(error).__name__,
                error,
                tick,
            )
            logger.debug("the tick failed", exc_info=True)
            return tick
        self._complain.fine("the tick works again.")
        return wait

    def _tick(self, tick: float) -> float:
        began = time.monotonic()
        early = began < self._mine_until
        if not early:
            sweeps.bury_vanished(lease.boot_id(), lease.pid_namespace(), lease.alive)
        report = sweeps.tick(by=self._node, force=early)
        logger.debug("tick: %s", report)
        if not early:
            self._mine_until = began + tick * ALMOST if report.won else 0.0
        ends = self._mine_until if early else began + tick
        left = max(SHORTEST, ends - time.monotonic())
        if not report.won or report.next_look is None:
            return left
        due_in = (report.next_look - runtime.current().clock.now()).total_seconds()
        if due_in <= 0 and not _did_something(report):
            return left  # what is due cannot be done now; not again at once
        return max(SHORTEST, min(left, due_in))


def _did_something(report: sweeps.TickReport) -> bool:
    return bool(report.released or report.timed_out or report.sent or report.advanced or report.started)
