"""What ``task_always_eager`` means here: an instance runs at once, in this process, up to its first real wait.

Rules of this file:
- Steps and turns run as a worker would run them, with the same copies of values, the same rows and the same errors.
- Time is no real wait, as Celery's own eager mode takes no notice of a countdown: for a sleep, a back-off and a delayed
  start the clock of these rows jumps ahead. A wait for something from outside is one: a signal, a condition, a step
  that is completed from outside. Its own time-out, and sleeps beside it, then do not pass.
- Nothing runs before the commit of whoever starts it, and nothing is raised: as with a worker, errors are in the rows.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import datetime
from uuid import UUID

from durable_celery import runtime, sweeps
from durable_celery.celery.inline import InlineTransport, MovedClock
from durable_celery.core import journal, transitions
from durable_celery.ports import InstanceRow, OpenStep, Store, Transport
from durable_celery.runtime import Runtime

JUMPS = 200  # of the clock for one call: whoever sleeps in an endless loop is left where it is

log = logging.getLogger("durable_celery")


def run(celery: Transport, publish: Callable[[Transport], object]) -> None:
    """Run what ``publish`` publishes, and all that follows; after the commit, where a transaction is open."""
    store = runtime.current().store
    if store.in_transaction():
        store.on_commit(lambda: _run(celery, publish))
    else:
        _run(celery, publish)


def _run(celery: Transport, publish: Callable[[Transport], object]) -> None:
    outer = runtime.current()
    clock = MovedClock(outer.clock.now())
    inline = InlineTransport(celery, clock, node="eager")
    store = outer.store.on_clock(clock.local)
    with runtime.lent(replace(outer, store=store, transport=inline, clock=clock)) as rt:
        publish(inline)
        clock.at = max(clock.at, _newest_turn(rt, inline.instances))
        for _ in range(JUMPS):
            inline.run_all()
            due_at = next_due(store, inline.instances)
            if due_at is None:
                return
            overdue, clock.at = due_at <= clock.at, max(clock.at, due_at)
            for instance_id in list(inline.instances):
                sweeps.look_after(instance_id)
            if overdue and not inline.hints:
                return  # it waits for something that is not here, such as a worker with other code
    log.warning(
        "task_always_eager: after %d sleeps of instances %s the next is left; without a worker nobody ends it",
        JUMPS, ", ".join(map(str, inline.instances)),
    )  # fmt: skip


def _newest_turn(rt: Runtime, instances: Iterable[UUID]) -> datetime:
    """An earlier call may have moved the clock of these rows ahead; it never goes back."""
    rows = [rt.store.find(instance_id) for instance_id in instances]
    return max((row.turn_at for row in rows if row is not None and row.turn_at is not None), default=rt.clock.now())


def next_due(store: Store, instances: Iterable[UUID]) -> datetime | None:
    """When the next sleep, back-off or start of these falls due; None if there is none, or one has a real wait."""
    dues: list[datetime] = []
    deadlines: list[datetime] = []
    for instance_id in instances:
        row = store.find(instance_id)
        if row is None or not _goes_on(row):
            continue
        steps = store.open_steps(row.id, members=True)
        if any(map(_waits_for_the_outside, steps)):
            return None
        dues += [step.due_at for step in steps if _waits_for_time(step) and step.due_at is not None]
        if row.state == transitions.PENDING:
            dues.append(row.start_at)
        if row.deadline_at is not None:
            deadlines.append(row.deadline_at)
    return min(dues + deadlines) if dues else None


def _goes_on(row: InstanceRow) -> bool:
    return row.state in transitions.OPEN_STATES and row.state != transitions.BLOCKED and row.paused_at is None


def _waits_for_time(step: OpenStep) -> bool:
    return step.kind == journal.TIMER or step.state == transitions.RETRYING


def _waits_for_the_outside(step: OpenStep) -> bool:
    return step.kind in (journal.SIGNAL, journal.CONDITION) or step.state in (transitions.EXTERNAL, transitions.RUNNING)
