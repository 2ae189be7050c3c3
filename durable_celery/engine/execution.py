"""The body of one attempt: run under its limits, its end as a value. Nothing here touches the row but heartbeats."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Protocol

from durable_celery import calls, codec, context, faults, payloads
from durable_celery.bodies import out_of_the_loop, run_body
from durable_celery.core import identity
from durable_celery.core.failure import Failure, failure_of, timed_out
from durable_celery.core.retry import seconds_of
from durable_celery.engine import verdicts
from durable_celery.engine.budget import TurnTimedOut
from durable_celery.errors import CompleteLater, NonRetryable, PayloadError, RetryLater, UsageError
from durable_celery.ports import Claimed, OpenStep, TaskEnd
from durable_celery.registry import registry
from durable_celery.runtime import Runtime

LOOK_EVERY = timedelta(seconds=1)  # between two looks whether a body is asked to stop


class Guard(Protocol):
    """Stops a body at its time limit where the worker pool can."""

    fired: bool
    own_process: bool  # that stop signals are meant for; a pool's child hears of none by an exception but SystemExit

    def limit(self, seconds: float | None, token: str) -> AbstractContextManager[None]:
        """Around the body: raises inside it at the limit, and sets ``fired``."""

    def limits(self, soft: float | None, hard: float | None, token: str) -> AbstractContextManager[None]:
        """The same with Celery's two limits: raises at ``soft``, ends the process at ``hard``; either may be None."""


class NoGuard:
    """For pools that cannot stop a body: the row is fenced by the sweep, the late result dropped."""

    fired = False
    own_process = True

    def limit(self, seconds: float | None, token: str) -> AbstractContextManager[None]:
        return contextlib.nullcontext()

    def limits(self, soft: float | None, hard: float | None, token: str) -> AbstractContextManager[None]:
        return contextlib.nullcontext()


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What the body did: a result, a failure (with its ``error``), a wait (``later``) or a hand-over (``external``).

    ``task`` is the end of an existing Celery task as it saw it itself.
    """

    result: str | None = None
    value: Any = None
    failure: Failure | None = None
    error: BaseException | None = None
    later: timedelta | None = None
    external: bool = False
    unknown_end: bool = False
    task: TaskEnd | None = None


def execute(rt: Runtime, claimed: Claimed, guard: Guard) -> Outcome:
    """Run the body of a claimed step. Raises only what stops the process itself; its lease tells the others."""
    step = claimed.step
    terms = verdicts.terms_of(step.options)
    definition = registry.steps[step.name]
    try:
        current = current_step(rt, claimed, terms)
        args, kwargs = calls.decode_call(claimed.args)
        faults.reach("body.before")
        with context.running(current):
            with in_order(rt, step.name), guard.limit(terms.start_to_close, step.token or ""):
                value = run_body(definition.body, args, kwargs)
        faults.reach("body.after")
        result = payloads.encode(value, rt.settings, root=f"the result of step {step.name}")
        return Outcome(result=result, value=value)
    except RetryLater as error:
        return _later(step, error)
    except CompleteLater:
        return Outcome(external=True)
    except PayloadError as error:
        return Outcome(failure=failure_of(error, final=True), error=error)
    except BaseException as error:
        if stopped_by(error, guard):
            raise  # its lease says so to the others
        if guard.fired:
            text = f"the attempt was stopped at start_to_close_timeout of {terms.start_to_close:g} s"
            return Outcome(failure=timed_out(text), error=error, unknown_end=True)
        return Outcome(failure=failure_of(error), error=error)


@contextlib.contextmanager
def in_order(rt: Runtime, name: str) -> Iterator[None]:
    """Around a body: puts right what it leaves of its transactions, in which the end of the step would be lost."""
    before = rt.store.before_body()
    try:
        yield
    except BaseException:
        rt.store.after_body(before)
        raise
    left = rt.store.after_body(before)
    if left:
        wrong = UsageError(
            f"{name} returned inside a transaction that it had begun on database {', '.join(map(repr, left))}; what it "
            "did in it was rolled back. End it in the body: with transaction.atomic(): ..., or set_autocommit(True) in "
            "a finally"
        )
        raise NonRetryable(wrong)


def current_step(rt: Runtime, claimed: Claimed, terms: verdicts.Terms) -> context.CurrentStep:
    """What the body may ask about its attempt."""
    step = claimed.step
    apart = not rt.store.joined()
    return context.CurrentStep(
        name=step.name,
        idempotency_key=identity.idempotency_key(step.instance_id, step.position),
        attempt=step.attempt,
        instance_id=str(step.instance_id),
        token=rt.store.token_of(step.id),
        last_heartbeat=codec.decode(claimed.last_heartbeat) if claimed.last_heartbeat else None,
        beat=_beat(rt, step, terms, apart),
        look=_look(rt, step, apart),
    )


def stopped_by(error: BaseException, guard: Guard) -> bool:
    """Whether it stops the process, and is no end of the body.

    Only the main thread of a process of its own hears of an interrupt or a shutdown by an exception. Raised anywhere
    else it is the body's: the process lives on, and nobody would take the claim back from it.
    """
    if guard.fired or not stops_the_process(error):
        return False
    if isinstance(error, SystemExit) and _by_a_signal(error.code):
        return True
    return guard.own_process and threading.current_thread() is threading.main_thread()


def stops_the_process(error: BaseException) -> bool:
    """Whether it may be a stop signal, or a worker that shuts down."""
    if isinstance(error, Exception):
        return False
    if isinstance(error, KeyboardInterrupt) or type(error).__module__ == "celery.exceptions":
        return True
    return isinstance(error, SystemExit) and _by_a_signal(error.code)


def interrupts_a_turn(error: BaseException) -> bool:
    """Whether it is no doing of a workflow's body: the same, and a time limit, the process's or the turn's."""
    limits = type(error).__module__ == "billiard.exceptions" or isinstance(error, TurnTimedOut)
    return limits or stops_the_process(error)


def _by_a_signal(code: object) -> bool:
    """A body may exit of its own; a pool process that is told to end exits with the signal below -256 (billiard)."""
    return isinstance(code, int) and -256 < code < -256 + signal.NSIG


def _later(step: OpenStep, error: RetryLater) -> Outcome:
    try:
        return Outcome(later=timedelta(seconds=seconds_of(error.delay, "RetryLater", minimum=0)), error=error)
    except ValueError as wrong:
        return Outcome(failure=failure_of(wrong, final=True), error=wrong)


def _beat(rt: Runtime, step: OpenStep, terms: verdicts.Terms, apart: bool) -> Callable[[Any], bool]:
    every = timedelta(seconds=min(1.0, (terms.heartbeat or 3.0) / 3))
    written: list[datetime] = []
    told = [False]

    def beat(details: Any) -> bool:
        now = rt.clock.now()
        if written and now - written[-1] < every:
            return told[0]
        written[:] = [now]
        with payloads.of(str(step.instance_id)):
            text = None if details is None else payloads.encode(details, rt.settings, root="heartbeat details")
        silent = None if terms.heartbeat is None else now + timedelta(seconds=terms.heartbeat)
        looks = (x for x in (step.close_at, silent, step.end_by_at) if x is not None)
        faults.reach("heartbeat.before")
        with out_of_the_loop():
            answer = rt.store.heartbeat(step.id, step.token or "", text, now, min(looks, default=None), apart=apart)
        told[0] = answer.cancel_requested or not answer.current
        return told[0]

    return beat


def _look(rt: Runtime, step: OpenStep, apart: bool) -> Callable[[], bool]:
    looked: list[datetime] = []

    def look() -> bool:
        now = rt.clock.local()
        if looked and abs(now - looked[-1]) < LOOK_EVERY:  # a clock that was set back is no reason not to look
            return False
        looked[:] = [now]
        try:
            with out_of_the_loop():
                answer = rt.store.asked(step.id, step.token or "", apart=apart)
        except Exception as error:
            if not rt.store.away(error):
                raise
            with out_of_the_loop():
                rt.store.close_connections()  # the next use opens another
            return False
        return answer.cancel_requested or not answer.current

    return look
