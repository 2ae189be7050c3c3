"""What becomes of a step row: after its body ended, after its process died, when its time is up. Pure.

Each function takes the row as it was read and says what to write; the store writes it only if the row is still so.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any

from durable_celery.core import transitions as t
from durable_celery.core.failure import Failure, lost, timed_out
from durable_celery.core.journal import MAP, POLL, WAITS
from durable_celery.core.retry import RetryPolicy, delay_after, retries
from durable_celery.errors import PollTimeout, type_name
from durable_celery.ports import OpenStep, StepChange

OUTCOME_GRACE = timedelta(seconds=2)  # how long an outcome may lie before the sweep asks for a turn
RESEND_GRACE = timedelta(seconds=3)  # how long a dispatched row may lie unclaimed before it is sent again
PATIENCE_CAP = timedelta(minutes=5)
SOON = timedelta(seconds=5)  # how soon to look again at what waits its turn behind a backlog
HINT_WITHIN = timedelta(seconds=5)  # what runs again this soon may ride on a broker countdown, as a hint
KILL_GRACE = timedelta(seconds=5)  # prefork: the body is stopped by signal, 3 s later its process; then comes the fence
EARLIER = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """The terms of a row, read from its ``options``. Durations in seconds."""

    retry: RetryPolicy = RetryPolicy()  # noqa: RUF009 - frozen
    start_to_close: float | None = None
    schedule_to_start: float | None = None
    schedule_to_close: float | None = None
    heartbeat: float | None = None
    on_lost: str = "rerun"
    atomic: bool = False
    soft: float | None = None  # an existing task's own soft limit
    task: Mapping[str, Any] | None = None  # it is an existing Celery task; see TaskCall.options
    poll: Mapping[str, Any] | None = None  # it is asked again ``every`` so often, for at most ``timeout``


@lru_cache(maxsize=1024)
def terms_of(options: str) -> Terms:
    """The terms written on a row; fields of a newer release are ignored."""
    data: dict[str, Any] = json.loads(options) if options else {}
    retry = RetryPolicy.from_data(data["retry"]) if "retry" in data else RetryPolicy(maximum_attempts=1)
    names = tuple(name for name in Terms.__slots__ if name != "retry")
    return Terms(retry=retry, **{name: data[name] for name in names if data.get(name) is not None})


def after_success(step: OpenStep, result: str, now: datetime) -> StepChange:
    """The body returned."""
    return _end(step, t.SUCCEEDED, now, result=result)


def after_failure(
    step: OpenStep, failure: Failure, now: datetime, draw: float, *, unknown_end: bool = False, fatal: bool = False
) -> StepChange:
    """The attempt ended in an error or time-out: another attempt, or (``fatal``: in any case) the step's end.

    No wait follows the last attempt, nor one that could not end before ``schedule_to_close_timeout``. A poll goes on
    waiting until its time-out, which is its own kind of end.
    """
    terms = terms_of(step.options)
    failures = step.failures + 1
    failure = _with_earlier(step, failure)
    counted = replace(step, failures=failures, unknown_end=step.unknown_end or unknown_end)
    again = not fatal and not failure.final and step.state != t.ABANDONED
    if again and retries(terms.retry, failures, failure.types or (failure.type,)):
        due_at = now + delay_after(terms.retry, failures, draw)
        if step.kind == POLL or step.end_by_at is None or due_at < step.end_by_at:
            return _again(counted, due_at, failure, terms)
    return _end(counted, t.FAILED, now, failure=failure)


def due_now(step: OpenStep, now: datetime) -> StepChange:
    """A step that waits for its next attempt need wait no longer."""
    start_by_at = _plus(now, terms_of(step.options).schedule_to_start)
    return replace(_same(step), due_at=now, look_at=now, start_by_at=start_by_at, resends=0)


def after_later(step: OpenStep, delay: timedelta, now: datetime) -> StepChange:
    """The body raised RetryLater: again then, nothing counted. Nobody waits for an abandoned one: that is its end."""
    if step.state == t.ABANDONED:
        return _end(step, t.CANCELLED, now, failure=_before(step))
    if step.kind != POLL and step.end_by_at is not None and now + delay >= step.end_by_at:
        text = f"RetryLater({delay.total_seconds():g}) goes beyond schedule_to_close_timeout"
        return _end(step, t.FAILED, now, failure=_with_earlier(step, timed_out(text)))
    return _again(step, now + delay, None, terms_of(step.options))


def after_own_retry(
    step: OpenStep, failure: Failure, delay: timedelta, now: datetime, *, args: str | None, queue: str | None
) -> StepChange:
    """An existing task asked to be run again by its own rules: counted as its retry, due when it said.

    ``args`` and ``queue`` are new ones, or None. Nobody waits for an abandoned one: that is its end.
    """
    counted = replace(step, failures=step.failures + 1)
    failure = _with_earlier(step, failure)
    if step.state == t.ABANDONED:
        return _end(counted, t.FAILED, now, failure=failure)
    return replace(_again(counted, now + delay, failure, terms_of(step.options)), args=args, queue=queue)


def after_external(step: OpenStep, now: datetime) -> StepChange:
    """The body raised CompleteLater: open, no process attached; the token stays valid.

    Nobody waits for an abandoned one: it ends here, and what the outside does to it is not known.
    """
    if step.state == t.ABANDONED:
        return _end(replace(step, unknown_end=True), t.CANCELLED, now, failure=_before(step))
    terms = terms_of(step.options)
    look_at = _earliest(step.end_by_at, _plus(now, terms.heartbeat))
    return replace(_same(step), state=t.EXTERNAL, lease_id=None, pid=None, close_at=None, look_at=look_at)


def after_loss(
    step: OpenStep, now: datetime, why: str, *, proven: bool, max_deaths: int, max_expiries: int
) -> StepChange:
    """The process that ran the step is gone (``proven``), or its lease ran out; each has a count and a cap."""
    terms = terms_of(step.options)
    if proven and step.started_at is not None and terms.start_to_close is not None:
        if now >= step.started_at + timedelta(seconds=terms.start_to_close):
            # Killed because it did not stop in time: that is a time-out, not a death.
            return after_failure(step, _too_long(terms.start_to_close), now, 1.0, unknown_end=True)
    deaths, expiries = step.deaths + proven, step.expiries + (not proven)
    counted = replace(step, deaths=deaths, expiries=expiries, unknown_end=True)
    over = deaths >= max_deaths or expiries >= max_expiries
    if terms.on_lost == "fail" or over or step.state == t.ABANDONED:
        cap = f", {deaths} deaths and {expiries} expired leases so far" if over else ""
        return _end(counted, t.FAILED, now, failure=_with_earlier(step, lost(f"{why}{cap}")))
    if step.end_by_at is not None and step.end_by_at <= now:
        return _over(counted, _too_late(step), now)
    return _again(counted, now, _with_earlier(step, lost(why)), terms)


def end_of_poll(options: str, now: datetime) -> datetime | None:
    """When a poll that begins now is over its time."""
    return _plus(now, (terms_of(options).poll or {}).get("timeout"))


# -- the clock -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What the sweep does with a row whose ``look_at`` has come; one of the fields says so.

    ``change``: write it (``outcome`` names what became of a running attempt). ``dispatch``: send it (again).
    ``advance``: its instance has something to take in. All but ``change`` also move ``look_at``.
    """

    change: StepChange | None = None
    outcome: str = ""
    dispatch: bool = False
    advance: bool = False
    look_at: datetime | None = None
    resends: int = 0


def judge(step: OpenStep, now: datetime, draw: float, lag: timedelta = timedelta(0)) -> Verdict:
    """The verdict over a row at ``now``.

    ``lag``: how far workers are behind their queues. What waits its turn that long is not lost, and sending it again
    would only add to the pile.
    """
    if step.kind in WAITS or step.state in t.STEP_FINAL:
        since = step.due_at if step.kind in WAITS else step.scheduled_at
        if since is not None and (again := waits_its_turn(since, now, step.resends, lag)) is not None:
            return Verdict(look_at=again, resends=step.resends)
        return Verdict(advance=True, look_at=now + patience(step.resends), resends=step.resends + 1)
    if step.state == t.HELD or step.kind == MAP:
        return Verdict()  # its clocks start when it is let go
    if step.end_by_at is not None and step.end_by_at <= now:
        ran = step.state in t.CLAIMED
        return Verdict(change=_over(step, _too_late(step), now, unknown_end=ran), outcome="timed out" if ran else "")
    return _judge_waiting(step, now, lag) if step.state in t.CLAIMABLE else _judge_running(step, now, draw)


def patience(resends: int) -> timedelta:
    """How long to wait for an answer before asking again; doubles, so that a backlog is not multiplied."""
    doubled: timedelta = RESEND_GRACE * 2 ** min(resends, 10)
    return min(doubled, PATIENCE_CAP)


def waits_its_turn(since: datetime, now: datetime, sent: int, lag: timedelta) -> datetime | None:
    """When to look again at what was ``sent`` so often since then, if the ``lag`` explains that nobody took it yet.

    None: it should have been taken by now. Looked at again soon, since a backlog may be over at any time.
    """
    turn_at = since + 2 * lag * sent
    return min(turn_at, now + SOON) if sent and now < turn_at else None


def _judge_waiting(step: OpenStep, now: datetime, lag: timedelta) -> Verdict:
    if step.start_by_at is not None and step.start_by_at <= now:
        text = f"not started within schedule_to_start_timeout of {terms_of(step.options).schedule_to_start or 0:g} s"
        return Verdict(change=_over(step, timed_out(text), now))
    if step.due_at is not None and step.due_at > now:
        return Verdict(look_at=_earliest(step.due_at, step.end_by_at))
    first = step.state == t.SCHEDULED  # sent when its row was committed; a retry is sent by the sweep itself
    since = step.scheduled_at + RESEND_GRACE if first else step.due_at or step.scheduled_at
    again = waits_its_turn(since, now, step.resends + first, lag)
    if again is not None:
        return Verdict(look_at=_earliest(again, step.start_by_at, step.end_by_at), resends=step.resends)
    look_at = _earliest(now + patience(step.resends), step.start_by_at, step.end_by_at)
    return Verdict(dispatch=True, look_at=look_at, resends=step.resends + 1)


def _judge_running(step: OpenStep, now: datetime, draw: float) -> Verdict:
    terms = terms_of(step.options)
    if step.close_at is not None and step.close_at <= now:
        failure = _too_long(terms.start_to_close or 0)
        return Verdict(change=after_failure(step, failure, now, draw, unknown_end=True), outcome="timed out")
    # A heartbeat of an earlier attempt says nothing about this one.
    alive_at = max((x for x in (step.heartbeat_at, step.started_at) if x is not None), default=None)
    silent_at = _plus(alive_at, terms.heartbeat)
    if silent_at is not None and silent_at <= now:
        failure = timed_out(f"no heartbeat for heartbeat_timeout of {terms.heartbeat:g} s")
        return Verdict(change=after_failure(step, failure, now, draw, unknown_end=True), outcome="timed out")
    return Verdict(look_at=_earliest(step.close_at, silent_at, step.end_by_at))


# -- parts ---------------------------------------------------------------------------------------------------------


def _same(step: OpenStep) -> StepChange:
    return StepChange(
        state=step.state, attempt=step.attempt, failures=step.failures, deaths=step.deaths, expiries=step.expiries,
        token=step.token, lease_id=step.lease_id, pid=step.pid, failure=step.failure, due_at=step.due_at,
        start_by_at=step.start_by_at, close_at=step.close_at, look_at=step.look_at, unknown_end=step.unknown_end,
        resends=step.resends,
    )  # fmt: skip


def _end(
    step: OpenStep, state: str, now: datetime, *, result: str | None = None, failure: Failure | None = None
) -> StepChange:
    return replace(
        _same(step), state=state, token=None, lease_id=None, pid=None, result=result,
        failure=failure.to_text() if failure is not None else None, due_at=None, start_by_at=None, close_at=None,
        finished_at=now, look_at=None if step.state == t.ABANDONED else now + OUTCOME_GRACE, resends=0,
    )  # fmt: skip


def _over(step: OpenStep, failure: Failure, now: datetime, *, unknown_end: bool = False) -> StepChange:
    step = replace(step, unknown_end=step.unknown_end or unknown_end)
    return _end(step, t.FAILED, now, failure=_with_earlier(step, failure))


def _again(step: OpenStep, due_at: datetime, failure: Failure | None, terms: Terms) -> StepChange:
    return replace(
        _same(step), state=t.RETRYING, token=None, lease_id=None, pid=None, close_at=None, due_at=due_at,
        failure=failure.to_text() if failure is not None else step.failure,
        start_by_at=_plus(due_at, terms.schedule_to_start), look_at=_earliest(due_at, step.end_by_at), resends=0,
    )  # fmt: skip


def _before(step: OpenStep) -> Failure | None:
    return Failure.from_text(step.failure) if step.failure else None


def _with_earlier(step: OpenStep, failure: Failure) -> Failure:
    before = _before(step)
    return failure if before is None else replace(failure, earlier=(*before.earlier, before.brief)[-EARLIER:])


def _too_late(step: OpenStep) -> Failure:
    if step.kind == POLL:
        return _not_liked(step)
    attempts = "1 attempt" if step.attempt == 1 else f"{step.attempt} attempts"
    return timed_out(f"not finished within schedule_to_close_timeout, {attempts}")


def _not_liked(step: OpenStep) -> Failure:
    rules, name = terms_of(step.options).poll or {}, type_name(PollTimeout)
    starts = "1 start" if step.attempt == 1 else f"{step.attempt} starts"
    failure = timed_out(f"no result was liked within {rules.get('timeout') or 0:g} s, {starts}")
    return replace(failure, type=name, types=(name,))


def _too_long(limit: float) -> Failure:
    return timed_out(f"the attempt ran longer than start_to_close_timeout of {limit:g} s")


def _plus(at: datetime | None, seconds: float | None) -> datetime | None:
    return None if at is None or seconds is None else at + timedelta(seconds=seconds)


def _earliest(*times: datetime | None) -> datetime | None:
    return min((x for x in times if x is not None), default=None)
