"""`Pump`: the broker, the workers and the clock in one object, so that whole workflows run in one test, at once.

It stands in for the transport and keeps what the engine publishes; the test delivers it in order, or drops, doubles,
delays and reorders it (`fate`, `choose`), moves the clock (`advance_time`), and lets processes die (`kill_at`). The
database is the real one: the fixture `pump` needs transactions of its own.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, timezone
from itertools import count
from types import TracebackType
from typing import Any
from uuid import UUID, uuid4

from django.db import connection
from django.db.models import F, QuerySet
from django.test.utils import CaptureQueriesContext

from django_app.announcing import AnnouncingStore
from django_app.models import EngineHeartbeat, Mailbox, WorkerLease, WorkflowInstance, WorkflowKey
from django_app.models import Message as StoredMessage
from django_app.store.attempts import WORKING
from durable_celery import faults, runtime, sweeps, workflow
from durable_celery.celery.transport import CeleryTransport
from durable_celery.conf import Settings
from durable_celery.engine import attempts, turns
from durable_celery.ports import Dispatch, Lease, TaskCall, TaskEnd, Wake
from durable_celery.registry import registry
from durable_celery.runtime import Clock, Incarnation, Runtime
from durable_celery.workflows import WorkflowDefinition

BEGIN = datetime(2026, 11, 29, 12, 0, 0, tzinfo=timezone.utc)
ROUNDS = 5000  # hops of the clock, or deliveries at one moment, after which something goes in circles
CONTROL = ("BEGIN", "COMMIT", "ROLLBACK", "SAVEPOINT", "RELEASE", "SET ")


class Killed(KeyboardInterrupt):
    """The process died here; no `except Exception` of the engine holds it up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hint:
    """A message to a worker: `step` or `instance` says what it is about; it can be delivered from `due_at` on."""

    number: int
    due_at: datetime
    step: int | None = None
    name: str = ""
    instance: UUID | None = None
    queue: str = ""
    after: tuple[float | None, float | None] = (None, None)
    task: str = ""  # of an existing Celery task


class Pump:
    """Installed as this process's transport and clock while the `with` block is open; time stands still otherwise.

    `settings` are fields of `Settings`: `Pump(lease=timedelta(seconds=2))`. Delivering runs the step or turn at once,
    in this thread; a body or a fault hook may deliver others meanwhile, as a second worker would.
    """

    def __init__(self, **settings: Any) -> None:
        self.now = BEGIN
        self.settings = Settings(**settings)
        self.queue: list[Hint] = []
        self.sent: list[Hint] = []
        self.ended: list[attempts.Ended] = []  # of each step message delivered
        self.down = False  # the broker takes nothing
        self.fate: Callable[[Hint], Sequence[float]] = lambda hint: (0.0,)  # one delay in seconds for each copy
        self.choose: Callable[[Sequence[Hint]], int] = lambda ready: 0  # which of the deliverable ones is next
        self.guard: Any = None  # an `attempts.Guard`
        self.contained: tuple[type[Exception], ...] = ()  # errors of the engine that the task logs, and goes on
        self.lease: Lease | None = None
        self.dead: list[Lease] = []
        self._numbers = count(1)
        self._celery = CeleryTransport(self.settings)
        self._before: Runtime | None = None
        self._kills: list[tuple[str, int, bool]] = []

    def __enter__(self) -> Pump:
        self._before = runtime.current()
        store = AnnouncingStore("default", clock=lambda: self.now)
        runtime.install(
            Runtime(store=store, transport=self, settings=self.settings, clock=_PumpedClock(store, lambda: self.now))
        )
        self.keep_lease()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        faults.set_hook(None)
        runtime.install(self._before)

    # -- the transport

    def dispatch(self, dispatches: Sequence[Dispatch], now: datetime) -> int:
        return sum(
            self._send(step=one.step_id, name=one.name, queue=one.queue, due_at=one.due_at or self.now,
                       after=(one.close_after, one.look_after), task=one.task)
            for one in dispatches
        )  # fmt: skip

    def advance(self, instance_id: UUID, queue: str = "", *, delay: float = 0) -> bool:
        return self._send(instance=instance_id, queue=queue, due_at=self.now + timedelta(seconds=delay))

    def advance_all(self, wakes: Sequence[Wake]) -> int:
        return sum(self.advance(wake.instance_id, wake.queue, delay=wake.delay) for wake in wakes)

    def queue_of(self, queue: str = "", step: str = "") -> str:
        return queue or "turns"

    def task(self, name: str) -> Any:
        return self._celery.task(name)

    def adapt(self, yielded: Any) -> Any:
        return self._celery.adapt(yielded)

    def plain(self, canvas: Any) -> Any:
        return self._celery.plain(canvas)

    def run_task(self, call: TaskCall) -> TaskEnd:
        return self._celery.run_task(call)

    def _send(self, *, due_at: datetime, **about: Any) -> bool:
        if self.down:
            return False
        hint = Hint(number=next(self._numbers), due_at=due_at, **about)
        self.sent.append(hint)
        return faults.post("message.turn" if hint.step is None else "message.step", hint, self._keep)

    def _keep(self, hint: Hint, later: float) -> None:
        for delay in self.fate(hint):
            due_at = max(hint.due_at, self.now) + timedelta(seconds=delay + later)
            self.queue.append(replace(hint, due_at=due_at))

    # -- the worker

    def deliver(self, hint: Hint) -> attempts.Ended | None:
        """Hand a message to a worker; how the attempt ended, None for a turn and for a process that died over it."""
        if hint in self.queue:
            self.queue.remove(hint)
        try:
            if hint.step is None:
                assert hint.instance is not None
                turns.advance(hint.instance)
                return None
            if not hint.task and hint.name not in registry.steps:
                sweeps.unknown_step(hint.step)
                return None
            ended = attempts.run(hint.step, incarnation=self.incarnation(), guard=self.guard, timing=hint.after)
        except Killed:
            self._bury()
            return None
        except self.contained:
            return None
        self.ended.append(ended)
        return ended

    def drain(self) -> None:
        """Deliver until nothing is left that can be delivered at this moment."""
        for _ in range(ROUNDS):
            ready = self.ready()
            if not ready:
                return
            self.deliver(ready[self.choose(ready)])
        raise AssertionError(f"after {ROUNDS} deliveries at {self.now} there are still {len(self.queue)} messages")

    def ready(self) -> list[Hint]:
        """What can be delivered now, in the order it was sent."""
        return [hint for hint in self.queue if hint.due_at <= self.now]

    def incarnation(self) -> Incarnation:
        assert self.lease is not None
        return Incarnation(lease_id=self.lease.id, node=self.lease.node)

    def keep_lease(self) -> None:
        """Renew the lease of the worker, or take a new one where it has none or was declared dead."""
        store, expires_at = runtime.current().store, self.now + self.settings.lease
        if self.lease is not None and store.renew_lease(self.lease.id, expires_at):
            return
        self.lease = Lease(
            id=uuid4(), node="pump", boot_id="boot", pid_ns="ns", pid=os.getpid(), start_ticks=1, expires_at=expires_at
        )
        store.open_lease(self.lease)

    def kill_at(self, point: str, nth: int = 1, *, proven: bool = True) -> None:
        """Let the process die when it reaches this fault point for the nth time, over a message or a tick.

        `proven`: its parent sees it and gives its claims back; else they wait until the lease runs out. Called again,
        the next process dies as well, and counts from the death before.
        """
        self._kills.append((point, nth, proven))
        faults.set_hook(self._reach)

    def _reach(self, name: str) -> None:
        if not self._kills or self._kills[0][0] != name:
            return
        point, left, proven = self._kills[0]
        self._kills[0] = (point, left - 1, proven)
        if left == 1:
            raise Killed

    def _bury(self) -> None:
        assert self.lease is not None
        _, _, proven = self._kills.pop(0) if self._kills else ("", 0, True)
        lease, self.lease = self.lease, None
        if proven:
            runtime.current().store.bury_lease(lease.id, self.now)
            sweeps.release(lease.id, reason="the process that ran it was killed")
        else:
            self.dead.append(lease)
        self.keep_lease()

    # -- the clock

    def tick(self) -> sweeps.TickReport:
        """Do what the clock has to do now, as the worker's thread does each second."""
        self.keep_lease()
        try:
            return sweeps.tick(by="pump", force=True)
        except Killed:
            self._bury()
            return sweeps.TickReport()

    def advance_time(self, seconds: float = 0, **duration: float) -> None:
        """Let this much time pass (`days=3`): whatever falls due meanwhile happens at its own time."""
        target = self.now + timedelta(seconds=seconds, **duration)
        self.drain()
        for _ in range(ROUNDS):
            due_at = self.next_due()
            if due_at is None or due_at > target:
                break
            self._hop(due_at)
        else:
            raise AssertionError(f"after {ROUNDS} hops the clock is at {self.now}, not at {target}")
        self.now = max(target, self.now)
        self.tick()
        self.drain()

    def finish(self) -> None:
        """Let time pass until nothing falls due any more: all has ended, or waits for what no clock brings."""
        self.drain()
        for _ in range(ROUNDS):
            due_at = self.next_due()
            if due_at is None:
                return
            self._hop(due_at)
        raise AssertionError(f"after {ROUNDS} hops, at {self.now}, something still falls due at {self.next_due()}")

    def next_due(self) -> datetime | None:
        """When the next message, row or expiry falls due."""
        looks = [runtime.current().store.next_look(), *(hint.due_at for hint in self.queue)]
        looks.append(_untaken_messages().order_by("look_at").values_list("look_at", flat=True).first())
        if self._waits_for_an_expiry():
            looks.append(self.now + self.settings.tick)
        return min((look for look in looks if look is not None), default=None)

    def _waits_for_an_expiry(self) -> bool:
        store = runtime.current().store
        self.dead = [lease for lease in self.dead if store.claims(lease_id=lease.id)]
        return bool(self.dead)

    def _hop(self, due_at: datetime) -> None:
        if due_at > self.now:
            self.now = due_at
        report = self.tick()
        idle = not (report.sent or report.advanced or report.started or report.timed_out or report.released)
        if idle and not self.ready():
            self.now += timedelta(milliseconds=100)  # what is due cannot be done right now
        self.drain()

    # -- what people see

    def tasks(self) -> Counter[str]:
        """How many messages were sent for each step; "" counts those for turns."""
        return Counter(hint.name for hint in self.sent)


def _untaken_messages() -> QuerySet[StoredMessage]:
    """Those that a turn may still take in; of one that lies for minutes, nobody waits for its name."""
    working = WorkflowInstance.objects.filter(state__in=WORKING, paused_at__isnull=True).values("chain_id")
    untaken = StoredMessage.objects.filter(taken_turn__isnull=True, chain_id__in=working)
    fresh: QuerySet[StoredMessage] = untaken.filter(look_at__lt=F("stored_at") + timedelta(minutes=5))
    return fresh


class _PumpedClock(Clock):
    """The pump's time for every process it plays."""

    def __init__(self, store: Any, local: Callable[[], datetime]) -> None:
        super().__init__(store)
        self._local = local

    def local(self) -> datetime:
        return self._local()


def release(name: str, body: Callable[..., Any], **options: Any) -> WorkflowDefinition[..., Any]:
    """Register `body` as the workflow of this name, in place of the one before: the next release of its code."""
    body.__name__ = body.__qualname__ = name
    made: WorkflowDefinition[..., Any] = workflow(name=name, **options)(body)
    return made


@contextmanager
def counted() -> Iterator[list[str]]:
    """`with counted() as sent:` leaves in `sent` the statements that were sent inside, without transaction control."""
    sent: list[str] = []
    with CaptureQueriesContext(connection) as captured:
        yield sent
    sent += [query["sql"] for query in captured.captured_queries if not query["sql"].upper().startswith(CONTROL)]


def clear_tables() -> None:
    """Leave nothing of an example before the next one; the tables of other apps stay as they are."""
    for model in (StoredMessage, Mailbox, WorkflowInstance, WorkflowKey, WorkerLease, EngineHeartbeat):
        model.objects.all().delete()
