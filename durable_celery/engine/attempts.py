"""One attempt of a step: claim, run the body, record its end, take the turn that follows.

Rules of this file:
- Nothing is open in the database while the body runs, unless the step is ``atomic``.
- What is stored depends on the attempt's token alone; a late or superseded end is kept for people and changes nothing.
"""

from __future__ import annotations

import logging
import os
import random
import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, TypeVar

from durable_celery import faults, runtime, surroundings
from durable_celery.core import transitions
from durable_celery.core.failure import failure_of
from durable_celery.core.journal import COMPENSATION
from durable_celery.engine import atomic, discretion, existing, turns, verdicts
from durable_celery.engine.atomic import Transacted
from durable_celery.engine.execution import Guard, NoGuard, Outcome, execute
from durable_celery.ports import AttemptRecord, Changed, Claimed, Dispatch, OpenStep, StepChange, TaskEnd
from durable_celery.runtime import Incarnation, Runtime

log = logging.getLogger("durable_celery")

OUTAGE = 60.0  # seconds for which a claim is looked for and an end tried to be stored; the pool's last net is later

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How an attempt ended, for Celery. ``kind``: succeeded, retrying, failed, external, or refused (nothing was run,
    or its end was not taken)."""

    kind: str
    value: Any = None
    error: BaseException | None = None
    retry_at: datetime | None = None
    task: TaskEnd | None = None  # of an existing Celery task, its own view


def run(
    step_id: int,
    *,
    incarnation: Incarnation,
    guard: Guard | None = None,
    timing: tuple[float | None, float | None] = (None, None),
) -> Ended:
    """Run one attempt if it can be claimed.

    ``timing``: seconds one attempt may take, and seconds until the sweep must look.
    """
    rt = runtime.current()
    claimed = _claim(rt, step_id, incarnation, timing)
    if claimed is None:
        return Ended(kind="refused")
    done = _attempt(rt, claimed, guard or NoGuard(), incarnation)
    if done.superseded and done.outcome == Outcome():
        return Ended(kind="refused")
    if done.superseded:
        return _superseded(rt, claimed.step, done.outcome, rt.clock.now(), incarnation)
    if done.change is not None:
        ended = _followed(rt, claimed.step, done.outcome, done.change, done.promoted, rt.clock.now())
    else:
        ended = _record(rt, claimed.step, done.outcome, incarnation)
    if done.outcome.task is not None:  # which has been told of already
        return replace(ended, task=done.outcome.task)
    return _discreet(rt, claimed, ended)


def _discreet(rt: Runtime, claimed: Claimed, ended: Ended) -> Ended:
    """The same without secrets: Celery logs it, and sends it to whoever listens to its events and signals."""
    if ended.kind == "succeeded":
        return replace(ended, value=discretion.value(claimed, ended.value))
    return ended if ended.error is None else replace(ended, error=discretion.error(rt, claimed, ended.error))


def _claim(
    rt: Runtime, step_id: int, incarnation: Incarnation, timing: tuple[float | None, float | None]
) -> Claimed | None:
    now = rt.clock.now()
    token = secrets.token_hex(16)
    grace = verdicts.KILL_GRACE if incarnation.pool == "prefork" else timedelta(0)
    close_after, look_after = timing
    close_at = None if close_after is None else now + timedelta(seconds=close_after) + grace
    looks = [
        x for x in (close_at, None if look_after is None else now + timedelta(seconds=look_after)) if x is not None
    ]
    faults.reach("claim.before")
    what = f"the claim of step {step_id} is not known"
    try:
        claimed = rt.store.claim(
            step_id,
            token=token,
            lease_id=incarnation.lease_id,
            pid=os.getpid(),
            now=now,
            close_at=close_at,
            look_at=min(looks, default=None),
        )
    except Exception as error:
        if rt.store.in_transaction() or not rt.store.away(error):
            raise
        # It may stand, and nobody would take it back from a process that lives.
        claimed = _patiently(rt, what, lambda: rt.store.claim_of(step_id, token), after=error)
    if claimed is not None:
        taken = claimed
        _patiently(rt, what, lambda: _arm(rt, taken, now, close_at, min(looks, default=None), grace))
    return claimed


def _arm(
    rt: Runtime, claimed: Claimed, now: datetime, close_at: datetime | None, look_at: datetime | None, grace: timedelta
) -> None:
    """The row's own terms rule; a message of another time or the step's whole deadline may need other times."""
    step, terms = claimed.step, verdicts.terms_of(claimed.step.options)
    close = None if terms.start_to_close is None else now + timedelta(seconds=terms.start_to_close) + grace
    silent = None if terms.heartbeat is None else now + timedelta(seconds=terms.heartbeat)
    look = min((x for x in (close, silent, step.end_by_at) if x is not None), default=None)
    if (close, look) != (close_at, look_at):
        rt.store.arm(step.id, step.token or "", close_at=close, look_at=look)


# -- its body ----------------------------------------------------------------------------------------------------------


def _attempt(rt: Runtime, claimed: Claimed, guard: Guard, incarnation: Incarnation) -> Transacted:
    terms = verdicts.terms_of(claimed.step.options)
    try:
        surrounding = surroundings.restored(claimed.context)
    except Exception as error:  # noqa: BLE001 - without its tenant or user, say, no body may run
        return Transacted(outcome=Outcome(failure=failure_of(error), error=error))
    with surrounding:
        if terms.atomic:
            return atomic.transact(rt, claimed, guard)
        if terms.task is not None:
            return Transacted(outcome=existing.execute(rt, claimed, guard, incarnation.node))
        return Transacted(outcome=execute(rt, claimed, guard))


# -- its end -----------------------------------------------------------------------------------------------------------


def _record(rt: Runtime, step: OpenStep, outcome: Outcome, incarnation: Incarnation) -> Ended:
    now = rt.clock.now()
    change = _change(step, outcome, now)
    record = None
    if outcome.failure is not None:
        what = "timed out" if outcome.failure.timed_out else "failed"
        record = _attempt_record(step, what, outcome, now, incarnation)

    def store() -> Changed:
        faults.reach("record.before")
        return rt.store.change_step(step, change, record=record)

    what = f"the end of step {step.name} at {step.position} of instance {step.instance_id} cannot be stored"
    changed = _patiently(rt, what, store)
    faults.reach("record.after")
    if not changed.ok:
        return _superseded(rt, step, outcome, now, incarnation)
    if changed.stopped:
        change = replace(change, state=transitions.FAILED)
    return _followed(rt, step, outcome, change, changed.promoted, now)


def _patiently(rt: Runtime, what: str, do: Callable[[], T], *, after: Exception | None = None) -> T:
    """What a body did is worth waiting for: a database that is away for a while costs no attempt. ``after``: it has
    just failed with that error.

    Its main process waits as well, with a claim that nobody takes over before the clock has run in good order again.
    """
    give_up_at = time.monotonic() + OUTAGE
    pause = 0.1
    while True:
        if after is None:
            try:
                return do()
            except Exception as error:
                if rt.store.in_transaction() or not rt.store.away(error) or time.monotonic() >= give_up_at:
                    raise
                after = error
        left = give_up_at - time.monotonic()
        log.warning("%s (%s: %s); it is tried again for %.0f s", what, type(after).__name__, after, left)
        after = None
        rt.store.close_connections()
        time.sleep(random.uniform(pause / 2, pause))
        pause = min(pause * 2, 2.0)


def _followed(
    rt: Runtime, step: OpenStep, outcome: Outcome, change: StepChange, promoted: Sequence[Dispatch], now: datetime
) -> Ended:
    if promoted:
        rt.transport.dispatch(promoted, now)
    follow(rt, step, change, now)
    if change.state == transitions.SUCCEEDED:
        return Ended(kind="succeeded", value=outcome.value)
    if change.state == transitions.RETRYING:
        return Ended(kind="retrying", error=outcome.error, retry_at=change.due_at)
    if change.state == transitions.EXTERNAL:
        return Ended(kind="external")
    return Ended(kind="failed", error=outcome.error)


def _change(step: OpenStep, outcome: Outcome, now: datetime) -> StepChange:
    if outcome.task is not None and outcome.failure is not None and outcome.task.state == "RETRY":
        asked = outcome.task
        return verdicts.after_own_retry(step, outcome.failure, asked.delay, now, args=asked.args, queue=asked.queue)
    if outcome.task is not None and outcome.task.failure is not None and outcome.task.state == "IGNORED":
        # Kept beside the result: a chain ends with a member that was ignored.
        return replace(verdicts.after_success(step, "null", now), failure=outcome.task.failure.to_text())
    if outcome.external:
        return verdicts.after_external(step, now)
    if outcome.later is not None:
        return verdicts.after_later(step, outcome.later, now)
    if outcome.failure is not None:
        return verdicts.after_failure(step, outcome.failure, now, random.random(), unknown_end=outcome.unknown_end)
    return verdicts.after_success(step, outcome.result or "null", now)


def follow(rt: Runtime, step: OpenStep, change: StepChange, now: datetime) -> None:
    """What a committed change of a step row leads to: a hint for a retry, or a turn where the outcome is waited for."""
    if change.state == transitions.RETRYING:
        if change.due_at is not None and change.due_at - now <= verdicts.HINT_WITHIN:
            terms = verdicts.terms_of(step.options)
            rt.transport.dispatch(
                [Dispatch(step_id=step.id, name=step.name, queue=change.queue or step.queue, due_at=change.due_at,
                          close_after=terms.start_to_close, look_after=terms.heartbeat,
                          task=terms.task["route"] if terms.task is not None else "")],
                now,
            )  # fmt: skip
    elif change.state in transitions.STEP_FINAL:
        alone = not step.join or step.kind == COMPENSATION or step.state == transitions.ABANDONED
        if alone or rt.store.has_news(step.instance_id, step.join):
            turns.advance(step.instance_id)


def _superseded(rt: Runtime, step: OpenStep, outcome: Outcome, now: datetime, incarnation: Incarnation) -> Ended:
    log.warning(
        "step %s at %s of instance %s: attempt %s ended after it was superseded; its %s is kept and changes nothing",
        step.name, step.position, step.instance_id, step.attempt, "error" if outcome.failure else "result",
    )  # fmt: skip
    rt.store.keep_superseded(step.id, _attempt_record(step, "superseded", outcome, now, incarnation))
    return Ended(kind="refused", error=outcome.error)


def _attempt_record(
    step: OpenStep, what: str, outcome: Outcome, now: datetime, incarnation: Incarnation
) -> AttemptRecord:
    return AttemptRecord(
        attempt=step.attempt,
        outcome=what,
        failure=outcome.failure.to_text() if outcome.failure else None,
        result=outcome.result if what == "superseded" else None,
        started_at=step.started_at,
        finished_at=now,
        node=incarnation.node,
    )
