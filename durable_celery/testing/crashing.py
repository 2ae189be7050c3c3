"""``crash_everywhere``: a workflow run straight, then again with a crash at each point it passes, must not differ.

Rules of this file:
- Each run begins from the same rows, at the same moment, under the same id; what it writes is undone after it.
- A process that dies loses what it had not committed, published, or handed to ``on_commit``; the broker keeps the rest.
- Recovery is the engine's own: its parent has seen the process die, and time passes until the sweep looks.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any
from unittest import mock
from uuid import UUID, uuid4

from durable_celery import runtime
from durable_celery.core import identity
from durable_celery.engine import successors
from durable_celery.errors import UsageError
from durable_celery.ports import TestedStore
from durable_celery.testing import killing
from durable_celery.testing.comparing import Seen, difference, seen_of
from durable_celery.testing.dying import Killed, Process, installed
from durable_celery.testing.reports import Point, Report, sample_of
from durable_celery.testing.runs import Run
from durable_celery.workflows import Starter, WorkflowDefinition

if TYPE_CHECKING:
    from durable_celery.testing.harness import Harness

HOPS = 2_000  # of the clock in one run
ACTS = 100  # of the outside at one moment


def everywhere(
    harness: Harness,
    workflow: Any,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    *,
    during: Callable[[Run[Any]], object] | None,
    effects: Callable[[], object] | None,
    real: bool,
    sample: int | None,
    seed: int,
) -> Report:
    """See ``Harness.crash_everywhere``."""
    began = time.monotonic()
    starter = _starter(workflow)
    harness._settle()
    trial = Trial(harness, starter, args, kwargs, during, effects)
    with ExitStack() as stack:
        crashed = stack.enter_context(killing.killed(harness, trial.play)) if real else trial.crashed
        straight, passed = trial.straight()
        seen = {point: crashed(point) for point in sample_of(passed, sample, seed)}
    differences = {point: found for point, each in seen.items() if (found := _difference(straight, each))}
    report = Report(
        workflow=starter._definition.name, points=tuple(passed), runs=len(seen) + 1,
        crashes=sum(each is not None for each in seen.values()),
        seconds=time.monotonic() - began, differences=differences,
    )  # fmt: skip
    if differences:
        raise AssertionError(f"crash_everywhere: a crash has changed what happens\n{report}")
    return report


def _difference(straight: Seen, seen: Seen | None) -> str | None:
    if seen is None:
        return "it was not reached this time: the run before it was another"
    return difference(straight, seen, crashes=1)


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

    def _call_outside(self, run: Run[Any], process: Process) -> None:
        """Who asks a process that dies is told so, and who waits for what it has left undone, and they ask again."""
        assert self.during is not None
        died = process.died
        try:
            self.during(run)
        except Exception as error:
            if process.died == died and not (died and isinstance(error, TimeoutError)):
                raise

    def _act(self, run: Run[Any], process: Process) -> None:
        if self.during is None:
            return
        for _ in range(ACTS):
            before = self.harness._transport.accepted, process.died
            with process.at_work():
                self._call_outside(run, process)
            self.harness._settle()
            quiet = (self.harness._transport.accepted, process.died) == before
            if quiet or self.harness._store.all_ended(UUID(run.id)):
                return
        raise AssertionError(
            f"during= was called {ACTS} times at one moment and each time had something to do; it should go by what it "
            f"sees, such as run.waiting_for: {run!r}"
        )


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
