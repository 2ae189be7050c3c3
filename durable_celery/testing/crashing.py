"""``crash_everywhere``: a workflow run straight, then again with a crash at each point it passes, must not differ.

Rules of this file:
- Each run begins from the same rows, at the same moment, under the same id; what it writes is undone after it.
- A process that dies loses what it had not committed, published, or handed to ``on_commit``; the broker keeps the rest.
- Recovery is the engine's own: its parent has seen the process die, and time passes until the sweep looks.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any
from unittest import mock
from uuid import UUID, uuid4

from durable_celery import faults, runtime, sweeps
from durable_celery.core import identity
from durable_celery.engine import fleet, successors
from durable_celery.errors import UsageError
from durable_celery.ports import Lease, TestedStore
from durable_celery.runtime import Incarnation
from durable_celery.testing.comparing import Effect, Seen, difference, seen_of
from durable_celery.testing.runs import Run
from durable_celery.workflows import Starter, WorkflowDefinition

if TYPE_CHECKING:
    from durable_celery.testing.harness import Harness

LONG = timedelta(days=30_000)  # no lease runs out: whoever dies is seen to
HOPS = 2_000  # of the clock in one run
ACTS = 100  # of the outside at one moment
SHOWN = 5  # differences in the message


class Killed(KeyboardInterrupt):
    """The process died here; no ``except Exception`` holds it up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """A place that the straight run has passed: its name, which time that was, and over what."""

    name: str
    nth: int
    over: str = ""

    def __str__(self) -> str:
        return f"{self.name}, time {self.nth}" + (f" ({self.over})" if self.over else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What ``crash_everywhere`` did. ``differences`` are by point; it returns none without raising."""

    workflow: str
    points: tuple[Point, ...]
    runs: int
    crashes: int
    seconds: float
    differences: Mapping[Point, str]

    @property
    def all_equal(self) -> bool:
        """Whether no crash has changed anything."""
        return not self.differences

    def __str__(self) -> str:
        how = "all equal" if self.all_equal else f"{len(self.differences)} different"
        head = f"{self.workflow}: {len(self.points)} points, {self.runs} runs, {how} ({self.seconds:.1f} s)"
        by_name = Counter(point.name for point in self.points)
        lines = [f"  {name:<32}{count:>5}" for name, count in sorted(by_name.items())]
        shown = list(self.differences.items())[:SHOWN]
        lines += [f"  after a crash at {point}:\n    {what}" for point, what in shown]
        if len(self.differences) > len(shown):
            lines.append(f"  and after {len(self.differences) - len(shown)} other crashes")
        return "\n".join([head, *lines])


def everywhere(
    harness: Harness,
    workflow: Any,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    *,
    during: Callable[[Run[Any]], object] | None,
    effects: Callable[[], object] | None,
) -> Report:
    """See ``Harness.crash_everywhere``."""
    began = time.monotonic()
    starter = _starter(workflow)
    harness._settle()
    trial = Trial(harness, starter, args, kwargs, during, effects)
    straight, passed = trial.straight()
    differences: dict[Point, str] = {}
    crashes = 0
    for point in passed:
        seen = trial.crashed(point)
        crashes += seen is not None
        found = "it was not reached this time: the run before it was another" if seen is None else None
        if found or (found := difference(straight, seen, crashes=1)):
            differences[point] = found
    report = Report(
        workflow=starter._definition.name, points=tuple(passed), runs=len(passed) + 1, crashes=crashes,
        seconds=time.monotonic() - began, differences=differences,
    )  # fmt: skip
    if differences:
        raise AssertionError(f"crash_everywhere: a crash has changed what happens\n{report}")
    return report


def _starter(workflow: Any) -> Starter[..., Any]:
    """Under an id: the same dice in each run."""
    made = workflow.using() if isinstance(workflow, WorkflowDefinition) else workflow
    if not isinstance(made, Starter):
        raise UsageError(f"crash_everywhere() takes a workflow, or one with options, got {workflow!r:.80}")
    return Starter(made._definition, replace(made._options, id=made._options.id or f"crash-everywhere-{uuid4()}"))


# -- one run -----------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Trial:
    """Runs the same workflow again and again."""

    harness: Harness
    starter: Starter[..., Any]
    args: Sequence[Any]
    kwargs: Mapping[str, Any]
    during: Callable[[Run[Any]], object] | None
    effects: Callable[[], object] | None

    def straight(self) -> tuple[Seen, list[Point]]:
        """How it goes on a good day, and what it passes."""
        process = Process(self.harness)
        return self._undone(process), process.passed

    def crashed(self, point: Point) -> Seen | None:
        """How it goes with a crash at this point; None if that was not reached."""
        process = Process(self.harness, target=point, die=_die)
        seen = self._undone(process)
        return seen if process.died else None

    def _undone(self, process: Process) -> Seen:
        with _without_logging(), self.harness._store.undone(), installed(self.harness, process, self.harness.now):
            return self.play(process)

    def play(self, process: Process) -> Seen:
        """Run it to its end, and say what came of it."""
        harness = self.harness
        with mock.patch.object(successors, "next_id", _next_id):
            run: Run[Any] = Run(self._started(process), harness._steps_of)
            harness._settle()
            for _ in range(HOPS):
                self._act(run, process)
                due_at = _next_due(harness._store)
                if due_at is None or harness._store.all_ended(UUID(run.id)):
                    return self._seen(run, process)
                process.keep_lease()
                harness._hop(due_at)
            if process.is_to_die:
                return self._seen(run, process)
        raise AssertionError(f"after {HOPS} hops of the clock {run!r} is still not at an end")

    def _started(self, process: Process) -> Any:
        """Whoever starts it does so again, if nothing has come of it."""
        started: list[Any] = []
        while not started:
            with process.at_work(), runtime.current().store.transaction():
                started.append(self.starter.start(*self.args, **self.kwargs))
        return started[-1]

    def _seen(self, run: Run[Any], process: Process) -> Seen:
        process.counted()
        effects = self.effects() if self.effects is not None else None
        return seen_of(self.harness._store, run, process.begun, process.kept, effects)

    def _act(self, run: Run[Any], process: Process) -> None:
        if self.during is None:
            return
        for _ in range(ACTS):
            before = self.harness._transport.accepted, process.died
            with process.at_work():
                self.during(run)
            self.harness._settle()
            quiet = (self.harness._transport.accepted, process.died) == before
            if quiet or self.harness._store.all_ended(UUID(run.id)):
                return
        raise AssertionError(
            f"during= was called {ACTS} times at one moment and each time had something to do; it should go by what it "
            f"sees, such as run.waiting_for: {run!r}"
        )


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
        run_id, position, name = self._harness._store.claimed[-1]
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
    parts = harness._clock, harness._store, harness._transport, harness._process
    harness._install(before, begin)
    harness._process = process.at_work
    checks, harness.check = harness.check, harness.check and not process.is_to_die
    process.open_lease()
    try:
        yield
    finally:
        harness._clock, harness._store, harness._transport, harness._process = parts
        harness.check = checks
        runtime.install(before)


def _die() -> None:
    raise Killed


def _next_id(last: Any, now: datetime) -> UUID:
    return identity.child_id(last.id, "next run")


def _next_due(store: TestedStore) -> datetime | None:
    return min((due for due in (store.next_look(), store.next_message()) if due is not None), default=None)


@contextmanager
def _without_logging() -> Iterator[None]:
    """What is said of hundreds of deaths on purpose is no news."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(before)
