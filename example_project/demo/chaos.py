"""What is killed, and when.

A worker or a pool child is killed only while it runs a step: its processes are frozen, the journal is read, and only
if it shows a step running are they killed, else they go on and it is tried again. An idle pool child is spared: it may
hold the lock of Celery's own job pipe, and on some brokers Celery does not get over that.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Protocol


class Mortal(Protocol):
    """What chaos needs of a process; see ``processes.Process``."""

    def start(self) -> None: ...

    def kill(self, when: Callable[[], bool] = ...) -> bool: ...

    def kill_child(self, when: Callable[[], bool]) -> bool: ...


@dataclass(frozen=True)
class Kill:
    """Due when this share of the orders is closed; what was killed is started again ``down`` seconds later."""

    share: float
    target: str
    down: float = 0.0


PLAN = (
    Kill(0.04, "pool child"),
    Kill(0.12, "worker", down=1),
    Kill(0.25, "Beat", down=3),
    Kill(0.35, "pool child"),
    Kill(0.50, "worker", down=1),
    Kill(0.70, "worker", down=1),
)


class Chaos:
    """Works through the plan, one kill at a time.

    ``running_attempts`` gives what the journal shows as running now; an attempt must never come again under the same
    value, so that the attempts of the dead are not taken for running ones.
    """

    def __init__(
        self,
        worker: Mortal,
        beat: Mortal,
        running_attempts: Callable[[], set[Hashable]],
        plan: tuple[Kill, ...] = PLAN,
    ) -> None:
        self.kills: Counter[str] = Counter()
        self._worker = worker
        self._beat = beat
        self._running_attempts = running_attempts
        self._pending = deque(plan)
        self._orphaned: set[Hashable] = set()
        self._restarts: list[tuple[float, Mortal]] = []

    @property
    def finished(self) -> bool:
        """Everything planned was killed, and all of it was started again."""
        return not self._pending and not self._restarts

    def go_on(self, now: float, closed_share: float) -> bool:
        """Do what is due; ``True`` while a kill waits for its moment. ``now`` is in monotonic seconds."""
        self._restart(now)
        if self._restarts or not self._pending or closed_share < self._pending[0].share:
            return False
        if not self._kill(self._pending[0]):
            return True
        kill = self._pending.popleft()
        self.kills[kill.target] += 1
        if kill.target != "pool child":
            self._restarts.append((now + kill.down, self._worker if kill.target == "worker" else self._beat))
        return False

    def _kill(self, kill: Kill) -> bool:
        if kill.target == "worker":
            return self._worker.kill(when=lambda: self._in_steps(1))
        if kill.target == "pool child":
            # Both children are in a step: whichever is killed, it is in the middle of one.
            return self._worker.kill_child(when=lambda: self._in_steps(2))
        return self._beat.kill()

    def _in_steps(self, count: int) -> bool:
        running = self._running_attempts() - self._orphaned
        if len(running) < count:
            return False
        self._orphaned |= running
        return True

    def _restart(self, now: float) -> None:
        for due, process in list(self._restarts):
            if due <= now:
                process.start()
                self._restarts.remove((due, process))
