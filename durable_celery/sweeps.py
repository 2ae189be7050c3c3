"""What the clock does: one tick, and what follows the death of a process. Safe to run twice at once.

Every act is guarded: a row is moved on (``look_at``) or changed by an UPDATE that says what it must still be, and only
who hit it acts. One bad row is logged and stepped over.
"""

from __future__ import annotations

import contextlib
import logging
import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from durable_celery import faults, runtime, steering
from durable_celery.core import transitions
from durable_celery.engine import attempts, discretion, fleet, verdicts
from durable_celery.ports import AttemptRecord, EndedMembers, InstanceRow, Lease, OpenStep, StepChange, Stuck
from durable_celery.registry import registry
from durable_celery.runtime import Runtime

log = logging.getLogger("durable_celery")

BATCH = 200
MEMBERS = 2000  # ended members of maps, which are looked at together


@dataclass(slots=True, kw_only=True)
class TickReport:
    """What one tick did, in counts of rows; ``won`` is False if another process has this interval."""

    won: bool = False
    leases: int = 0
    released: int = 0
    timed_out: int = 0
    sent: int = 0
    advanced: int = 0
    started: int = 0
    unblocked: int = 0
    stuck: int = 0
    errors: int = 0
    lag: timedelta = timedelta(0)  # how far the workers are behind their queues
    next_look: datetime | None = None


def tick(*, by: str, force: bool = False, by_beat: bool = False) -> TickReport:
    """Do everything whose time has come. ``force`` acts whoever has this interval (tests, ``doctor``).

    ``by_beat``: Beat sent it, which is noted as its sign of life.
    """
    rt = runtime.current()
    report = TickReport()
    now = rt.clock.measure()
    if by_beat:
        rt.store.note_beat(now, rt.settings.tick)
    since = rt.store.take_tick(now, rt.settings.tick, by)
    if since is None and not force:
        report.next_look = rt.store.next_look()
        return report
    report.won = True
    faults.reach("tick.begins")
    leases = rt.store.leases()
    report.lag = timedelta(seconds=max((lease.lag for lease in leases), default=0.0))
    healthy = since is not None and now - since >= rt.settings.lease
    _each(report, _to_bury(leases, now) if healthy else (), lambda lease: _expire(rt, lease, now, report))
    _each(report, rt.store.claims(limit=BATCH) if healthy else (), lambda step: _lose_orphan(rt, step, now, report))
    _each(
        report,
        rt.store.due_steps(now, BATCH),
        lambda step: _judge(rt, step, now, report),
        lambda step: _put_off(rt, step, now),
    )
    _each(report, rt.store.ended_members(now, MEMBERS), lambda ended: _look_at_map(rt, ended, now, report))
    _each(report, rt.store.due_instances(now, BATCH), lambda instance: _wake(rt, instance, now, report))
    _each(report, rt.store.due_messages(now, BATCH), lambda instance_id: _advance(rt, instance_id, "", report))
    _each(
        report,
        rt.store.blocked(registry.fingerprints(), BATCH),
        lambda instance_id: _try_again(rt, instance_id, report),
    )
    _each(report, rt.store.newly_stuck(now, BATCH), lambda stuck: _tell_stuck(rt, stuck, report))
    report.next_look = rt.store.next_look()
    faults.reach("tick.ends")
    log.debug("tick by %s: %s", by, report)
    return report


def look_after(instance_id: UUID) -> None:
    """Do what the tick does, for one instance alone (and whatever run of its chain is the newest)."""
    rt = runtime.current()
    row = rt.store.find(instance_id)
    if row is None or row.paused_at is not None:
        return
    report, now = TickReport(), rt.clock.now()
    for step in rt.store.open_steps(row.id, members=True):
        if step.look_at is not None and step.look_at <= now:
            _judge(rt, step, now, report)
    if _is_over(row, now) or (row.state == transitions.PENDING and row.start_at <= now):
        _wake(rt, row, now, report)


def _each(
    report: TickReport,
    rows: Iterable[Any],
    act: Callable[[Any], object],
    put_off: Callable[[Any], object] = lambda row: None,
) -> None:
    """``put_off``: what becomes of a row that cannot be handled, lest enough of them leave no room for the others."""
    for row in rows:
        try:
            faults.reach("tick.before_act")
            act(row)
            faults.reach("tick.after_act")
        except Exception as error:
            report.errors += 1
            log.exception("the tick could not handle %s; it goes on with the next", _name(row))
            _reconnect(error)
            with contextlib.suppress(Exception):
                put_off(row)


def _reconnect(error: Exception) -> None:
    """A connection that broke at one row serves none of the others; raises if the database is gone for all of them."""
    store = runtime.current().store
    if store.away(error):
        store.reconnect()


def _name(row: Any) -> str:
    if isinstance(row, OpenStep):
        return f"step {row.name} at {row.position} of instance {row.instance_id}"
    return f"{type(row).__name__} {getattr(row, 'id', row)}"


# -- rows whose time has come ------------------------------------------------------------------------------------------


def _judge(rt: Runtime, step: OpenStep, now: datetime, report: TickReport) -> None:
    verdict = verdicts.judge(step, now, random.random(), report.lag)
    faults.reach("tick.judged")
    if verdict.change is not None:
        if change_step(rt, step, verdict.change, now, verdict.outcome):
            report.timed_out += 1
        return
    if not rt.store.postpone_step(step, verdict.look_at, resends=verdict.resends):
        return  # another sweep acted on this row since it was read
    if verdict.dispatch or (verdict.advance and _is_awaited(rt, step)):
        _send(rt, step, verdict, now, report)


def _send(rt: Runtime, step: OpenStep, verdict: verdicts.Verdict, now: datetime, report: TickReport) -> None:
    """What the broker did not take does not count, or it would be waited for long after the broker is back."""
    if verdict.dispatch:
        sent = rt.transport.dispatch(rt.store.dispatches([step.id]), now)
        report.sent += sent
    else:
        sent = _advance(rt, step.instance_id, "", report)
    if not sent:
        soon = min(now + verdicts.RESEND_GRACE, verdict.look_at or now)
        rt.store.postpone_step(replace(step, look_at=verdict.look_at), soon, resends=step.resends)
    elif verdict.dispatch:
        _note_resend(step)


def _is_awaited(rt: Runtime, step: OpenStep) -> bool:
    """An end that others are awaited with is no news before the last of them; then whoever ended that one said so."""
    ended_in_join = step.join and step.state in transitions.STEP_FINAL
    return not ended_in_join or rt.store.has_news(step.instance_id, step.join)


def _look_at_map(rt: Runtime, ended: EndedMembers, now: datetime, report: TickReport) -> None:
    """Members ended a while ago: nobody need look at them again, unless they were the last and nobody noticed.

    Whoever ends later than they were read has a row to be looked at, too.
    """
    if not rt.store.has_news(ended.instance_id, ended.join):
        rt.store.unlook_members(ended, None)
        return
    rt.store.unlook_members(ended, now + verdicts.RESEND_GRACE)
    _advance(rt, ended.instance_id, "", report)


def _put_off(rt: Runtime, step: OpenStep, now: datetime) -> None:
    rt.store.postpone_step(step, now + verdicts.patience(step.resends), resends=step.resends + 1)


def _note_resend(step: OpenStep) -> None:
    """A scheduled row was sent by the turn that made it; a retry that falls due is sent here for the first time."""
    number = step.resends + (step.state == transitions.SCHEDULED)
    if number:
        log.info(
            "step %s at %s of instance %s is sent again, number %s", step.name, step.position, step.instance_id, number
        )


def _wake(rt: Runtime, instance: InstanceRow, now: datetime, report: TickReport) -> None:
    if _is_over(instance, now):
        steering.time_out(instance.chain_id)
        return
    again = verdicts.waits_its_turn(instance.start_at, now, 1, report.lag)
    if instance.state == transitions.PENDING and instance.start_at < now and again is not None and report.lag:
        rt.store.postpone_instance(instance.id, again)  # its hint waits its turn in the queue
        return
    rt.store.postpone_instance(instance.id, now + verdicts.patience(2))
    report.started += instance.state == transitions.PENDING
    rt.transport.advance(instance.id, instance.queue)


def _is_over(instance: InstanceRow, now: datetime) -> bool:
    """Whether its body has to be told that its time is over: it still runs, and nobody has asked it to end before."""
    told = instance.state == transitions.COMPENSATING or instance.cancel_requested_at is not None
    return not told and instance.deadline_at is not None and instance.deadline_at <= now


def _advance(rt: Runtime, instance_id: UUID, queue: str, report: TickReport) -> bool:
    sent = rt.transport.advance(instance_id, queue)
    report.advanced += sent
    return sent


def _try_again(rt: Runtime, instance_id: UUID, report: TickReport) -> None:
    report.unblocked += 1
    rt.transport.advance(instance_id)


def _tell_stuck(rt: Runtime, stuck: Stuck, report: TickReport) -> None:
    report.stuck += 1
    log.warning(
        "instance %s of workflow %s%s is stuck since %s: %s",
        stuck.instance_id,
        stuck.name,
        f" (key {stuck.key})" if stuck.key is not None else "",
        stuck.since,
        discretion.words(rt, stuck.instance_id, stuck.waiting_for) or "open for longer than expected",
    )


def change_step(
    rt: Runtime, step: OpenStep, change: StepChange, now: datetime, outcome: str = "", node: str = ""
) -> bool:
    """Write a verdict over a row and do what follows; False if the row had moved on."""
    record = None
    if outcome:
        record = AttemptRecord(
            attempt=step.attempt,
            outcome=outcome,
            failure=change.failure,
            started_at=step.started_at,
            finished_at=now,
            node=node,
        )
    changed = rt.store.change_step(step, change, record=record)
    if not changed.ok:
        return False
    if changed.promoted:
        rt.transport.dispatch(changed.promoted, now)
    if change.state in transitions.STEP_FINAL or changed.stopped:
        # A turn runs users' code; the process that keeps time asks a worker to take it.
        rt.transport.advance(step.instance_id)
    else:
        attempts.follow(rt, step, change, now)
    return True


# -- processes that died -----------------------------------------------------------------------------------------------


def release(lease_id: UUID, pid: int | None = None, *, reason: str) -> int:
    """Give back the claims of a process that is proven dead: one pool child (``pid``), or the whole incarnation.

    Called by the parent that saw its child die, or by a process of the same host that finds the other gone. Counts a
    death for each step; returns how many rows were released.
    """
    rt = runtime.current()
    return sum(
        _lose(rt, step, rt.clock.now(), reason, proven=True) for step in rt.store.claims(lease_id=lease_id, pid=pid)
    )


def bury_vanished(boot_id: str, pid_ns: str, alive: Callable[[int, int], bool]) -> int:
    """Declare dead the leases of this host whose process is gone (or whose pid is another's by now); release them."""
    rt = runtime.current()
    count = 0
    for lease in rt.store.leases():
        if (lease.boot_id, lease.pid_ns) != (boot_id, pid_ns) or not boot_id or alive(lease.pid, lease.start_ticks):
            continue
        if rt.store.bury_lease(lease.id, rt.clock.now()):
            count += release(lease.id, reason=f"process {lease.pid} of worker {lease.node} is gone")
    return count


def unknown_step(step_id: int) -> None:
    """A message came for a step this process has no code for: leave it to a worker that has, and say so."""
    rt = runtime.current()
    now = rt.clock.now()
    for dispatch in rt.store.dispatches([step_id]):
        look_at = fleet.leave_unknown_step(rt, dispatch.name, now)
        rt.store.note_step_unknown(step_id, f"a worker that knows step {dispatch.name!r}", look_at)


def _to_bury(leases: Iterable[Lease], now: datetime) -> list[Lease]:
    return [lease for lease in leases if lease.expires_at < now]


def _expire(rt: Runtime, lease: Lease, now: datetime, report: TickReport) -> None:
    if not rt.store.bury_lease(lease.id, now, expired_by=now):
        return  # renewed, or buried by another
    report.leases += 1
    log.warning(
        "the lease of worker %s (process %s) ran out at %s; its steps go to others",
        lease.node,
        lease.pid,
        lease.expires_at,
    )
    for step in rt.store.claims(lease_id=lease.id):
        report.released += _lose(rt, step, now, f"the lease of worker {lease.node} ran out", proven=False)


def _lose_orphan(rt: Runtime, step: OpenStep, now: datetime, report: TickReport) -> None:
    """A claim whose lease was buried by somebody who died before releasing it, or whose lease row is gone."""
    report.released += _lose(rt, step, now, "the process that ran it is gone", proven=False)


def _lose(rt: Runtime, step: OpenStep, now: datetime, reason: str, *, proven: bool) -> bool:
    settings = rt.settings
    change = verdicts.after_loss(
        step, now, reason, proven=proven, max_deaths=settings.max_deaths, max_expiries=settings.max_expiries
    )
    outcome = "timed out" if change.failures > step.failures else "lost"
    log.warning(
        "step %s at %s of instance %s: attempt %s %s: %s",
        step.name,
        step.position,
        step.instance_id,
        step.attempt,
        outcome,
        reason,
    )
    return change_step(rt, step, change, now, outcome)
