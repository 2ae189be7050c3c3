"""What a Celery worker does besides running tasks: hold a lease, watch its children, tick.

Started after the pool has forked and before the consumer takes the first message. A stop may come before running tasks
have ended: it ends the tick alone. The lease and the watch end when everything else of the worker has.
"""

from __future__ import annotations

import gc
import logging
from typing import Any

from celery import bootsteps
from celery.concurrency.prefork import TaskPool as PreforkPool

from durable_celery import runtime, sweeps
from durable_celery.celery import seat as seats
from durable_celery.celery.clockwork import Clockwork
from durable_celery.celery.errands import Errands
from durable_celery.celery.gate import gate
from durable_celery.celery.seat import Seat
from durable_celery.celery.wake import Waker
from durable_celery.celery.watch import Watch
from durable_celery.errors import NotConfigured

logger = logging.getLogger(__name__)


class DurableStep(bootsteps.StartStopStep):
    """The bootstep; ``celery -A proj report`` and the worker's debug log show it by this name."""

    requires = ("celery.worker.components:Pool",)
    label = "Durable"

    def __init__(self, worker: Any, **options: Any) -> None:
        self.presence: Presence | None = None
        super().__init__(worker, **options)

    def include_if(self, worker: Any) -> bool:  # noqa: ARG002
        """Only where there is an engine; else say what to do, and let the worker run its other tasks."""
        try:
            runtime.current()
        except NotConfigured as error:
            logger.critical("This worker cannot run workflows: %s", error)
            return False
        return True

    def create(self, worker: Any) -> None:
        """Take the seat before the pool forks, so that its children inherit the board."""
        gate.watch_forks()
        pool_name = "prefork" if _is_prefork(worker.pool) else str(worker.pool_cls.__module__).rpartition(".")[2]
        self.presence = Presence(Seat(node=worker.hostname, pool=pool_name), worker.pool)
        self.presence.seat.lease.queues = lambda: "\n".join(sorted(worker.app.amqp.queues.consume_from))
        seats.take(self.presence.seat)

    def start(self, worker: Any) -> None:
        """Begin, and end when the last bootstep has."""
        presence = self.presence
        assert presence is not None
        stopped = worker.blueprint.on_stopped

        def on_stopped() -> None:
            try:
                presence.end()
            finally:
                if stopped:
                    stopped()

        worker.blueprint.on_stopped = on_stopped
        presence.begin()

    def register_with_event_loop(self, worker: Any, hub: Any) -> None:  # noqa: ARG002
        """Each time the worker's event loop begins, after a reconnect as well."""
        if self.presence is not None:
            self.presence.listen_in(hub)

    def stop(self, worker: Any) -> None:  # noqa: ARG002
        """Tick no more; steps may still be running."""
        if self.presence is not None:
            self.presence.stop_ticking()

    def terminate(self, worker: Any) -> None:
        """The same, in a hurry."""
        self.stop(worker)


class Presence:
    """The threads of one worker's main process, in the order in which they come and go."""

    def __init__(self, seat: Seat, pool: Any) -> None:
        self.seat = seat
        self._pool = pool
        self._errands = Errands()
        # Looked up when it is called: the pool has it once it has started.
        self._waker = Waker(lambda: pool.maintain_pool()) if _is_prefork(pool) else None
        self._watch: Watch | None = None
        self._clockwork: Clockwork | None = None

    def begin(self) -> None:
        """Take the lease, then watch, then tick."""
        self.seat.lease.open()
        self._errands.start()
        if self._waker is not None:
            self._watch = Watch(self._pool, self.seat, self._errands, self._waker.wake)
            self._watch.start()
            # Celery collects garbage before each fork. What is here now stays anyway; looking through it all would hold
            # the GIL for 0.1 s and more, just when a dead child's claims are to be given back.
            gc.freeze()
        if runtime.current().settings.tick_in_worker:
            self._clockwork = Clockwork(self.seat.node)
            self._clockwork.start()

    def listen_in(self, hub: Any) -> None:
        """Let the watch wake this event loop."""
        if self._waker is not None:
            self._waker.register(hub)

    def run_errand(self, what: str, errand: Any) -> None:
        """Have database work done beside the main thread, which must go on."""
        self._errands.add(what, errand)

    def stop_ticking(self) -> None:
        """End the tick; again does nothing."""
        clockwork, self._clockwork = self._clockwork, None
        if clockwork is not None:
            clockwork.stop()

    def end(self) -> None:
        """The pool has ended: give back what killed children held, then the lease."""
        self.stop_ticking()
        if self._watch is not None:
            self._watch.stop()
        self._errands.finish(2)
        try:
            self._give_back()
        except Exception as error:
            logger.warning(
                "%s could not give its lease back (%s: %s); others take over when it runs out",
                self.seat.node,
                type(error).__name__,
                error,
            )
        if self._waker is not None:
            self._waker.close()
        if seats.taken() is self.seat:
            seats.take(None)

    def _give_back(self) -> None:
        lease_id = self.seat.lease.id
        if lease_id is not None:
            with gate.database():
                sweeps.release(lease_id, None, reason=f"worker {self.seat.node} was stopped")
        self.seat.lease.close()


def presence_of(worker: Any) -> Presence | None:
    """The presence of a worker that has the bootstep."""
    steps = getattr(worker, "steps", None) or ()
    return next((step.presence for step in steps if isinstance(step, DurableStep)), None)


def _is_prefork(pool: Any) -> bool:
    return isinstance(pool, PreforkPool)
