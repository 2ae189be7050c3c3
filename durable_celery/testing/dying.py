"""A process that works in this thread, and dies at a point as one does that is killed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import TYPE_CHECKING
from uuid import uuid4

from durable_celery import faults, runtime, sweeps
from durable_celery.engine import fleet
from durable_celery.ports import Lease
from durable_celery.runtime import Incarnation
from durable_celery.testing.comparing import Effect
from durable_celery.testing.reports import Point

if TYPE_CHECKING:
    from durable_celery.testing.harness import Harness

LONG = timedelta(days=30_000)  # no lease runs out: whoever dies is seen to


class Killed(KeyboardInterrupt):
    """The process died here; no ``except Exception`` holds it up."""


class Process:
    """The process that works on a message or a tick, and may die at the nth time it is at a point."""

    def __init__(
        self, harness: Harness, *, target: Point | None = None, die: Callable[[], object] = lambda: None
    ) -> None:
        self.passed: list[Point] = []
        self.died = False
        self.begun: Counter[Effect] = Counter()
        self.kept: Counter[Effect] = Counter()
        self.lease: Lease | None = None
        self._harness = harness
        self._target = target
        self._die = die
        self._times: Counter[str] = Counter()
        self._hook: faults.Hook | None = None

    @property
    def is_to_die(self) -> bool:
        """Whether it has a target; the straight run alone decides each turn twice."""
        return self._target is not None

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """Around a message, a tick or what the outside does; of one inside another, the inner one dies."""
        before, self._hook = self._hook, self.reach
        faults.set_hook(self._hook)
        try:
            yield
        except Killed:
            faults.set_hook(None)
            self.died = True
            self._recover()
        finally:
            self._hook = before
            faults.set_hook(before)

    def reach(self, name: str) -> None:
        """It is at a point."""
        self._times[name] += 1
        times = self._times[name]
        if self._target is None:
            self.passed.append(Point(name=name, nth=times, over=self._harness._transport.in_hand))
        elif not self.died and (name, times) == (self._target.name, self._target.nth):
            self._die()
        self._count(name)

    def _count(self, name: str) -> None:
        if name == "body.before":
            self.note_begun(self._effect())
        elif name == "body.after" and self._harness._store.in_transaction():
            self._harness._store.on_commit(Kept(self, self._effect()))

    def _effect(self) -> Effect:
        run_id, position, name = self._harness._store.begun[-1]
        return str(run_id), position, name

    def note_begun(self, effect: Effect) -> None:
        """A body begins."""
        self.begun[effect] += 1

    def note_kept(self, effect: Effect) -> None:
        """A transaction with a body in it is committed."""
        self.kept[effect] += 1

    def counted(self) -> None:
        """All is counted."""

    def open_lease(self) -> None:
        """Be a new process."""
        self.lease = self.new_lease()
        self._harness._store.open_lease(self.lease)
        self._harness._transport.incarnation = Incarnation(lease_id=self.lease.id, node=self.lease.node)

    def new_lease(self) -> Lease:
        """Who it is."""
        return Lease(
            id=uuid4(), node="test", boot_id="", pid_ns="", pid=0, start_ticks=0, code=fleet.announcement(),
            expires_at=self._harness.now + LONG,
        )  # fmt: skip

    def keep_lease(self) -> None:
        """It lives."""
        assert self.lease is not None
        self._harness._store.renew_lease(self.lease.id, self._harness.now + LONG)

    def _recover(self) -> None:
        """Its parent sees it die and gives back what it had claimed."""
        assert self.lease is not None
        store = self._harness._store
        store.lose_committed()
        store.bury_lease(self.lease.id, self._harness.now)
        sweeps.release(self.lease.id, reason="the process that ran it was killed")
        self.open_lease()


class Kept:
    """Counts a commit, whatever becomes of the process afterwards."""

    outlives = True

    def __init__(self, process: Process, effect: Effect) -> None:
        self._process, self._effect = process, effect

    def __call__(self) -> None:
        self._process.note_kept(self._effect)


@contextmanager
def installed(harness: Harness, process: Process, begin: datetime) -> Iterator[None]:
    """The parts of the harness anew, as a process that starts; those from before come back."""
    before = runtime.current()
    parts = harness._clock, harness._store, harness._transport, harness._process, harness._parts
    harness._install(before, begin)
    harness._process = process.at_work
    checks, harness.check = harness.check, harness.check and not process.is_to_die
    process.open_lease()
    try:
        yield
    finally:
        harness._clock, harness._store, harness._transport, harness._process, harness._parts = parts
        harness.check = checks
        runtime.install(before)
