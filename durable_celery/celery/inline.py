"""A broker and a worker in one: what is published is kept, and run here, in this thread, when somebody says so.

Nothing recurses: what a turn or an attempt publishes while it runs waits until that has ended, in order.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from celery.exceptions import SoftTimeLimitExceeded

from durable_celery import faults, sweeps
from durable_celery.engine import attempts, turns
from durable_celery.ports import Dispatch, TaskCall, TaskEnd, Transport, Wake
from durable_celery.registry import registry
from durable_celery.runtime import Clock, Incarnation

ROUNDS = 100_000  # messages run at one moment, after which something goes in circles


class MovedClock(Clock):
    """A clock that stands where it is put, for the code that is run inline alone."""

    def __init__(self, at: datetime) -> None:
        self.at = at

    def now(self) -> datetime:
        """The time it was put to."""
        return self.at

    def guess(self) -> datetime:
        """The same."""
        return self.at

    def measure(self) -> datetime:
        """The same; there is no other clock to compare it to."""
        return self.at

    def local(self) -> datetime:
        """The same."""
        return self.at


@dataclass(frozen=True, slots=True, kw_only=True)
class Hint:
    """A message: take the turns of ``instance``, or run an attempt of a step."""

    instance: UUID | None = None
    step: Dispatch | None = None


class InlineTransport:
    """``ports.Transport`` without a broker. ``celery`` knows the app's tasks, and runs those that exist already.

    ``after_body`` is called when a step's body has ended, and before anything is stored of it.
    """

    def __init__(
        self, celery: Transport, clock: MovedClock, *, node: str, after_body: Callable[[], None] = lambda: None
    ) -> None:
        self.hints: deque[Hint] = deque()
        self.instances: dict[UUID, None] = {}  # each that a message was about, in order
        self._celery = celery
        self._clock = clock
        self.accepted = 0  # messages so far
        self.in_hand = ""  # what is being worked on, in words
        self.incarnation = Incarnation(node=node)
        self._after_body = after_body

    def dispatch(self, dispatches: Sequence[Dispatch], now: datetime) -> int:
        """Keep step messages. What is due later does not go: the row has its time, and whoever moves the clock sees it.

        Returns how many were kept.
        """
        due = [one for one in dispatches if one.due_at is None or one.due_at <= self._clock.at]
        return sum(faults.post("message.step", Hint(step=one), self._keep) for one in due)

    def advance(self, instance_id: UUID, queue: str = "", *, delay: float = 0) -> bool:
        """Keep a hint that this instance has something to do."""
        self.instances[instance_id] = None
        return faults.post("message.turn", Hint(instance=instance_id), self._keep)

    def advance_all(self, wakes: Sequence[Wake]) -> int:
        """The same for many; returns how many were kept."""
        return sum(self.advance(wake.instance_id, wake.queue, delay=wake.delay) for wake in wakes)

    def _keep(self, hint: Hint, later: float) -> None:
        self.accepted += 1
        if not later:  # what is late is as good as lost here: the clock finds its row
            self.hints.append(hint)

    def queue_of(self, queue: str = "", step: str = "") -> str:
        """Where messages would go."""
        return self._celery.queue_of(queue, step)

    def task(self, name: str) -> Any:
        """The Celery task of that name on the current app."""
        return self._celery.task(name)

    def adapt(self, yielded: Any) -> Any:
        """The command a signature stands for."""
        return self._celery.adapt(yielded)

    def plain(self, canvas: Any) -> Any:
        """A signature as plain data."""
        return self._celery.plain(canvas)

    def run_task(self, call: TaskCall) -> TaskEnd:
        """Run an attempt of an existing task."""
        return self._celery.run_task(call)

    # -- the worker

    def run_all(self) -> None:
        """Run what is kept and what follows from it, until nothing is left for this moment."""
        for _ in range(ROUNDS):
            if not self.hints:
                return
            self.run_next()
        raise RuntimeError(f"{ROUNDS} turns and steps ran without time passing; something goes in circles")

    def run_next(self) -> None:
        """Run the oldest message kept."""
        hint = self.hints.popleft()
        self.in_hand = f"step {hint.step.name}" if hint.step is not None else "a turn"
        if hint.instance is not None:
            turns.advance(hint.instance)
        elif hint.step is not None:
            self._run_step(hint.step)

    def _run_step(self, one: Dispatch) -> None:
        if not one.task and one.name not in registry.steps:
            sweeps.unknown_step(one.step_id)
            return
        timing = (one.close_after, one.look_after)
        attempts.run(one.step_id, incarnation=self.incarnation, guard=InlineGuard(self._after_body), timing=timing)


class InlineGuard:
    """Stops no body. One that raises what it would be stopped by (a mock does) counts as stopped."""

    own_process = True

    def __init__(self, after_body: Callable[[], None]) -> None:
        self.fired = False
        self._after_body = after_body

    def limit(self, seconds: float | None, token: str) -> AbstractContextManager[None]:
        """Around the body of a step."""
        return self._watched()

    def limits(self, soft: float | None, hard: float | None, token: str) -> AbstractContextManager[None]:
        """Around the body of an existing task."""
        return self._watched()

    @contextlib.contextmanager
    def _watched(self) -> Iterator[None]:
        try:
            yield
        except SoftTimeLimitExceeded:
            self.fired = True
            raise
        finally:
            self._after_body()
