"""An attempt of an ``atomic`` step: body and result in ONE transaction of the engine's database.

Rules of this file:
- The first statement looks whether the attempt is still current, the last one stores the result where it is; nothing
  in between holds the row, so no sweep, cancel or turn waits for a body. Who took the row meanwhile wins.
- An exception out of the transaction says nothing about the commit: the row is read, and what it says holds. The body
  runs again only when the row says that nothing of it is left.
- What the body raises takes its effects back; it is recorded in a second transaction, as is the turn that follows.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from durable_celery import faults
from durable_celery.core.failure import failure_of
from durable_celery.engine import discretion, verdicts
from durable_celery.engine.execution import Guard, Outcome, execute
from durable_celery.errors import UsageError
from durable_celery.ports import Claimed, Dispatch, StepChange
from durable_celery.runtime import Runtime

log = logging.getLogger("durable_celery")

TRIES = 5  # transactions in one attempt, while the database undoes them for reasons that pass
LONGEST_PAUSE = 0.5
DURABLE = "durable atomic block"  # in Django's words


@dataclass(frozen=True, slots=True, kw_only=True)
class Transacted:
    """What came of it. ``change`` was committed with the body's effects; None: nothing was, record ``outcome``.

    ``superseded``: the attempt was no longer current, and its effects were taken back.
    """

    outcome: Outcome
    change: StepChange | None = None
    promoted: Sequence[Dispatch] = ()
    superseded: bool = False


def transact(rt: Runtime, claimed: Claimed, guard: Guard) -> Transacted:
    """Run the body of a claimed step and store its result with it."""
    for tries_left in reversed(range(TRIES)):
        done = _once(rt, claimed, guard)
        if done.change is not None or done.superseded or not tries_left or not rt.store.transient(done.outcome.error):
            break
        log.info(
            "step %s at %s of instance %s: its transaction was undone by the database and is run again: %s",
            claimed.step.name, claimed.step.position, claimed.step.instance_id,
            discretion.error(rt, claimed, done.outcome.error),
        )  # fmt: skip
        time.sleep(random.uniform(0.5, 1) * min(0.02 * 2 ** (TRIES - tries_left), LONGEST_PAUSE))
    return done


class _TakenBackError(Exception):
    """Rolls the transaction back."""


def _once(rt: Runtime, claimed: Claimed, guard: Guard) -> Transacted:
    step = claimed.step
    done: Transacted | None = None
    error: Exception | None = None
    try:
        with rt.store.atomic_attempt(step) as current:
            done = _within(rt, claimed, guard) if current else Transacted(outcome=Outcome(), superseded=True)
            if done.change is None:
                raise _TakenBackError
            faults.reach("atomic.before_commit")
        faults.reach("atomic.after_commit")
    except _TakenBackError:
        pass
    except Exception as raised:  # noqa: BLE001 - whatever it is, the row says whether it came before the commit or after
        error = raised
    if guard.fired or error is not None:
        rt.store.close_connections()  # it may be in the middle of a statement for good
    if done is not None and (error is None or done.change is None):
        return done
    assert error is not None
    return _judged(rt, claimed, done, error)


def _within(rt: Runtime, claimed: Claimed, guard: Guard) -> Transacted:
    outcome = execute(rt, claimed, guard)
    if outcome.failure is not None or outcome.later is not None:
        return Transacted(outcome=_explained(outcome))
    now = rt.clock.now()
    if outcome.external:
        change = verdicts.after_external(claimed.step, now)
    else:
        change = verdicts.after_success(claimed.step, outcome.result or "null", now)
    # The token stays on the row: it is the proof, for whoever has lost the answer to the commit.
    stored = rt.store.change_step(claimed.step, replace(change, token=claimed.step.token))
    if not stored.ok:
        return Transacted(outcome=outcome, superseded=True)
    return Transacted(outcome=outcome, change=change, promoted=stored.promoted)


def _judged(rt: Runtime, claimed: Claimed, done: Transacted | None, error: Exception) -> Transacted:
    step = claimed.step
    if done is not None and rt.store.atomic_committed(step):
        log.error(
            "step %s at %s of instance %s: attempt %s was committed, then this was raised (by the connection, or by an "
            "on_commit of the body); the result stands",
            step.name, step.position, step.instance_id, step.attempt,
            exc_info=discretion.error(rt, claimed, error),
        )  # fmt: skip
        return done
    return Transacted(outcome=_explained(Outcome(failure=failure_of(error), error=error)))


def _explained(outcome: Outcome) -> Outcome:
    """What cannot be right in an atomic step is not tried again; Django's own refusal is said in our words."""
    failure, error = outcome.failure, outcome.error
    if failure is None or not isinstance(error, (UsageError, RuntimeError)):
        return outcome
    if isinstance(error, RuntimeError) and DURABLE in str(error):
        text = (
            "atomic(durable=True) in the body of an atomic step is refused: it asks for a transaction of its own, and "
            "the body's is committed with its result; leave durable out, or make it a step without atomic=True"
        )
        wrong = UsageError(text)
        wrong.__cause__ = error
        return replace(outcome, failure=failure_of(wrong, final=True), error=wrong)
    return replace(outcome, failure=replace(failure, final=True)) if isinstance(error, UsageError) else outcome
