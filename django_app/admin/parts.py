"""What a page shows of a step, an attempt, an error, a message: plain values, ready for the templates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from django_app import looks
from django_app.records import of_step
from django_app.timeline import words
from django_app.values import Budget, Shown, call_lines, value_text
from durable_celery import disclosure
from durable_celery.core import identity, journal
from durable_celery.core import transitions as t
from durable_celery.core.failure import Failure
from durable_celery.core.handlers import Answer
from durable_celery.disclosure import Disclosure
from durable_celery.secrecy import Scrubber

WITHOUT_TEXT = "the text stands on the step's own page"
MESSAGE = 2_000  # characters shown of an error's own text


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """How many characters of each kind of text a page shows, before its budget is spent."""

    value: int
    trace: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Badge:
    text: str
    look: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureShown:
    brief: str
    marks: Sequence[str]
    trace: Shown


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptShown:
    head: str
    times: str
    failure: FailureShown | None
    result: Shown | None


@dataclass(frozen=True, slots=True, kw_only=True)
class StepShown:
    position: str
    url: str
    name: str
    kind: str
    badge: Badge
    note: str
    compensation: str
    attempts: str
    deaths: str
    scheduled: str
    started: str
    finished: str
    spans: str
    args: Shown | None
    result: Shown | None
    failure: FailureShown | None
    earlier: Sequence[AttemptShown]
    earlier_head: str
    earlier_left: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageShown:
    name: str
    kind: str
    stored: str
    read: str
    unread: bool
    dedupe: str
    payload: Shown
    answer: Shown | None
    failure: FailureShown | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """What all parts of one page share. ``workflow`` names what the instance's own secrets are called."""

    workflow: Disclosure
    scrub: Scrubber
    budget: Budget
    sizes: Sizes
    without_text: bool = False  # of errors, nothing but their type


def badge_of(instance: Any) -> Badge:
    state = looks.state_of(instance)
    return Badge(text=state, look=looks.LOOKS.get(state, "off"))


def failure_shown(text: str | None, context: Context) -> FailureShown | None:
    """An error as recorded; one that cannot be read is shown as its raw text."""
    if not text:
        return None
    try:
        failure = Failure.from_text(text)
    except (ValueError, TypeError, KeyError, AttributeError):
        raw = WITHOUT_TEXT if context.without_text else context.scrub(text)
        return FailureShown(brief=context.budget.spend(raw, MESSAGE).text, marks=(), trace=Shown())
    flags = {
        "timed out": failure.timed_out, "lost": failure.lost, "cancelled": failure.cancelled, "final": failure.final
    }  # fmt: skip
    kind = failure.type.rpartition(".")[2]
    if context.without_text:
        return FailureShown(brief=f"{kind}: {WITHOUT_TEXT}", marks=(), trace=Shown())
    message = f"{kind}: {failure.message}" if failure.message else kind
    return FailureShown(
        brief=context.budget.spend(context.scrub(message), MESSAGE).text,
        marks=[name for name, is_so in flags.items() if is_so],
        trace=context.budget.spend(context.scrub(_trace(failure)), context.sizes.trace, end=True),
    )


def _trace(failure: Failure) -> str:
    """The traceback, and below it where the error came from: the steps and children it passed through."""
    causes = [f"{'while handling' if cause.implied else 'caused by'} {cause}" for cause in failure.causes]
    return "\n".join([failure.traceback.rstrip(), *causes]) if causes else failure.traceback


def attempt_shown(record: Any, context: Context, of: Disclosure) -> AttemptShown:
    return AttemptShown(
        head=f"attempt {record.attempt}: {record.outcome}",
        times=_times(record.started_at, record.finished_at) + (f", {record.node}" if record.node else ""),
        failure=failure_shown(record.failure, context),
        result=_value(record.result, of, context) if record.result is not None else None,
    )


def step_shown(step: Any, records: Sequence[Any], context: Context, url: str) -> StepShown:
    """A row with its earlier attempts; ``records`` are theirs, oldest first."""
    of = of_step(step, context.workflow)
    state = looks.step_state_of(step)
    # Secrets of arguments that were not read cannot be found in error texts.
    errors = replace(context, without_text=step.args is None and of.has_secrets)
    # The last error stands on the row itself, and among the attempts too.
    earlier = [record for record in records if record.attempt != step.attempt or record.outcome == "superseded"]
    left = max(earlier[0].attempt - 1, 0) if earlier else 0
    return StepShown(
        position=step.position,
        url=url,
        name=step.name or step.kind,
        kind=step.kind,
        badge=Badge(text=state, look=looks.LOOKS.get(state, "off")),
        note=_note(step, state),
        compensation="has a compensation" if step.compensation and step.kind == journal.STEP else "",
        attempts=looks.attempts_of(step),
        deaths=_deaths(step),
        scheduled=looks.moment(step.scheduled_at),
        started=looks.moment(step.started_at),
        finished=looks.moment(step.finished_at),
        spans=_spans(step),
        args=_args(step, of, context),
        result=_value(step.result, of, context, size=getattr(step, "result_size", None)),
        failure=failure_shown(step.failure or _last_failure(step, records), errors),
        earlier=[attempt_shown(record, errors, of) for record in earlier],
        earlier_head="1 earlier attempt"
        if len(earlier) == 1 and not left
        else f"{len(earlier) + left} earlier attempts",
        earlier_left=f"{left} before these" if left else "",
    )


def message_shown(message: Any, context: Context) -> MessageShown:
    unread = message.taken_turn is None or (message.kind == journal.SIGNAL and message.delivered_turn is None)
    turn = message.taken_turn if message.delivered_turn is None else message.delivered_turn
    of = disclosure.of_values() | context.workflow
    answer = _answer(message)
    return MessageShown(
        name=message.name,
        kind=message.kind,
        stored=looks.moment(message.stored_at),
        read="" if unread else f"turn {turn}, {looks.moment(message.taken_at)}",
        unread=unread,
        dedupe=context.scrub(message.dedupe or "")[:200],
        payload=_value(message.payload, of, context, size=message.payload_size) or Shown(),
        answer=_value(answer.value, of, context, size=None if message.answer else message.answer_size),
        failure=failure_shown(answer.failure, context),
    )


def _answer(message: Any) -> Answer:
    """That of an update; of a row somebody has written by hand its raw text."""
    try:
        return Answer.from_text(message.answer) if message.answer else Answer()
    except (ValueError, AttributeError):
        return Answer(failure=message.answer)


def _args(step: Any, of: Disclosure, context: Context) -> Shown | None:
    if step.args is None:
        return _too_large(step.args_size)
    if not step.args:
        return None
    in_words = step.kind in journal.CALLS
    known = context.scrub.data  # a secret may have got another name on its way here
    text = call_lines(step.args, of, known) if in_words else value_text(step.args, of, known)
    return context.budget.spend(text, context.sizes.value)


def _value(encoded: str | None, of: Disclosure, context: Context, size: int | None = None) -> Shown | None:
    if encoded is None:
        return _too_large(size) if size else None
    if not encoded:
        return None
    return context.budget.spend(value_text(encoded, of, context.scrub.data), context.sizes.value)


def _too_large(size: int | None) -> Shown:
    return Shown(text="…", note=f"{size or 0:,} characters, shown on the step's own page")


def _last_failure(step: Any, records: Sequence[Any]) -> str | None:
    """Of a step that is tried again, the error of the attempt before."""
    same = [record for record in records if record.attempt == step.attempt and record.outcome != "superseded"]
    return same[-1].failure if same and step.state in t.STEP_OPEN else None


def _note(step: Any, state: str) -> str:
    if identity.ASIDE in step.position:
        return "set aside by skip()"
    if step.abandoned:
        return "result not delivered"
    if step.kind == journal.MAP:
        return str(getattr(step, "progress", ""))
    if state == t.RETRYING and step.due_at:
        return f"again at {looks.moment(step.due_at)}"
    if step.kind in journal.WAITS and step.due_at and state == t.SCHEDULED:
        return f"until {looks.moment(step.due_at)}"
    return "its effect may exist" if step.unknown_end and state != t.SUCCEEDED else ""


def _deaths(step: Any) -> str:
    told = [f"{step.deaths} death{'s' * (step.deaths != 1)}"] if step.deaths else []
    told += [f"{step.expiries} lease{'s' * (step.expiries != 1)} run out"] if step.expiries else []
    return ", ".join(told)


def _spans(step: Any) -> str:
    """How long it stood in the queue and how long it ran, or has been waiting."""
    if step.started_at is None:
        return words(step.finished_at - step.scheduled_at) if step.finished_at else ""
    told = f"queued {words(max(step.started_at - step.scheduled_at, step.started_at - step.started_at))}"
    if step.attempt > 1:
        told = f"last start {looks.moment(step.started_at)}"
    return told + (f", ran {words(step.finished_at - step.started_at)}" if step.finished_at else "")


def _times(start: datetime | None, end: datetime | None) -> str:
    if start is None:
        return looks.moment(end)
    return looks.moment(start) + (f", {words(end - start)}" if end is not None else "")
