"""Replay: drive a body through its journal, then through what is new, and say what that means. Pure."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from functools import partial
from types import FrameType
from typing import Any, TypeVar

from durable_celery.core import cancelling, complaints, scope, transitions
from durable_celery.core import generator as generators
from durable_celery.core import journal as journals
from durable_celery.core.commands import Command
from durable_celery.core.decision import Decision
from durable_celery.core.failure import Failure, failure_of
from durable_celery.core.journal import Event, Journal
from durable_celery.core.run import Run
from durable_celery.errors import CancelRequested, ReplayError

T = TypeVar("T")

ENDS = (transitions.COMPLETED, transitions.FAILED)

_refusing: list[Run] = []  # whose bodies would not close; kept so that no garbage collector runs them


def not_the_bodys(error: BaseException) -> bool:
    """By default, what stops this process and not the body."""
    return isinstance(error, KeyboardInterrupt)


def replay(
    body: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    journal: Journal,
    *,
    turn: int,
    now: datetime,
    started_at: datetime | None,
    decode: Callable[[str], Any],
    encode: Callable[[Any, str], str],
    adapt: Callable[[Any], Command[Any] | None] = lambda yielded: None,
    fails_on: tuple[type[BaseException], ...] = (),
    interrupts: Callable[[BaseException], bool] = not_the_bodys,
    in_finally: Callable[[FrameType], bool] = lambda frame: False,
    recorded_only: bool = False,
    info: Any = None,
) -> Decision:
    """What the body does when it sees everything that is stored and not taken in yet.

    ``turn`` is the number of the turn being taken (1 for the first), ``now`` its time, ``started_at`` the time of
    turn 1 (None if this is it). ``adapt`` makes commands of foreign things that may be yielded, and gives None for
    others. Never raises for what the body does: a bug, a mismatch or a wrong use is a BLOCKED decision. An exception of
    which ``interrupts`` says that it is not the body's (a stop signal, a time limit) goes on, and nothing was decided.
    ``in_finally`` tells where a frame of the body stands, for cleanup after a cancel that is handled no more.
    ``recorded_only`` feeds what earlier turns took in and nothing else: the decision says where the run stands or how
    it ended, and appends nothing. The body is closed on return.
    """
    make = partial(
        Run, journal, turn=turn, now=started_at or now, decode=decode, encode=encode, adapt=adapt, fails_on=fails_on,
        interrupts=interrupts, in_finally=in_finally, recorded_only=recorded_only, info=info,
    )  # fmt: skip
    events = journals.events(journal, turn=turn, now=now)
    decision, missed = _driven(make(), body, args, kwargs, events)
    if missed and not recorded_only:
        # The outcome that let the body end was there before them, and its handler was still to get them.
        decision, _ = _driven(make(), body, args, kwargs, journals.sooner(events, missed, turn=turn))
    return decision


def _driven(
    run: Run, body: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], events: list[Event]
) -> tuple[Decision, list[Event]]:
    """What the body does when it sees these events, and the signals it ended too soon to hear."""
    fed: list[Event] = []
    with scope.driving(run):
        problem, place = _drive(run, body, args, kwargs, events, fed)
    decision = _outcome(run, body, fed, problem, place)
    return decision, run.handlers.missed(events) if decision.state in ENDS else []


def _outcome(
    run: Run, body: Callable[..., Any], fed: list[Event], problem: BaseException | None, place: str
) -> Decision:
    if problem is None and run.ended and (ended := _cancelled(run)) is not None:
        return _decided(run, fed, **ended)
    if problem is None and run.ended and run.error is None and run.continuing.next is not None:
        return run.continuing.decided(_decided(run, fed, state=transitions.CONTINUED))
    if problem is None and run.ended:
        problem = run.error
        if problem is None:
            problem = complaints.returned(run.value, getattr(run.info, "name", "") or body.__qualname__, body)
        elif isinstance(problem, run.failures):
            return _decided(run, fed, state=transitions.FAILED, failure=failure_of(problem))
    if problem is not None:
        misfit = run.undecodable or isinstance(problem, ReplayError)
        return _blocked(problem, place, misfit=misfit)
    if not run.ended:
        return _decided(run, fed, state=transitions.WAITING, waiting=run.waiting(), warn_at=warned_at(run))
    return _decided(run, fed, state=transitions.COMPLETED, value=run.value)


def then(
    run: Run,
    body: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    events: list[Event],
    call: Callable[[], T],
) -> T:
    """Feed the body all events, ``call`` while it stands there, close it; what the call gave. Raises what stands in the
    way, or what the call raises."""
    given: list[T] = []
    problem, _ = _drive(run, body, args, kwargs, events, [], lambda: given.append(call()))
    if not given:
        assert problem is not None
        raise problem
    return given[0]


def _drive(
    run: Run,
    body: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    events: list[Event],
    fed: list[Event],
    at_last: Callable[[], None] = lambda: None,
) -> tuple[BaseException | None, str]:
    """Feed the body all events and close it. What stands in the way, if anything does, and the line it stood at.

    ``at_last`` is called before it is closed.
    """
    problem: BaseException | None = None
    try:
        _feed(run, body, args, kwargs, events, fed)
        at_last()
    except Exception as error:  # a mismatch, a wrong use, or a stored value that cannot be decoded
        if run.interrupts(error):
            raise
        problem = error
    finally:
        place = run.where()
        left = run.leave()
        if not left:
            _refusing.append(run)
    if problem is None and not left:
        problem = complaints.refuses_to_close(place)
    return problem, place


def _feed(
    run: Run,
    body: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    events: list[Event],
    fed: list[Event],
) -> None:
    run.replaying = run.turn > 1 or run.recorded_only
    run.start(body, args, kwargs)
    for event in events:
        recorded = event.turn < run.turn
        if run.recorded_only and not recorded:
            return
        if run.ended:
            if run.cancelling.take_late(event.message):
                fed += [event] if not recorded else []
            elif recorded:
                raise run.mismatch(_name(event), "an outcome of this run", "nothing: it has ended")
            continue
        if run.feed(event) and not recorded:
            fed.append(event)


def _cancelled(run: Run) -> dict[str, Any] | None:
    """How a run ends that was asked to, or that left by ``CancelRequested`` of its own; None for any other."""
    error, message = run.error, run.cancelling.message
    if isinstance(error, CancelRequested) and message is None:
        failure = Failure(type="Cancelled", types=("Cancelled",), message=error.reason, cancelled=True)
        return {"state": transitions.CANCELLED, "failure": failure}
    if message is None or not (error is None or isinstance(error, (CancelRequested, *run.failures))):
        return None
    left_by = None if isinstance(error, CancelRequested) else error
    return cancelling.outcome(message, cancelling.reason_of(run, message), left_by)


def warned_at(run: Run) -> datetime | None:
    """When the first of the open waits counts as stuck; None if none ever does."""
    found = (node.warn_at for nodes in run.waits.values() for node in nodes if node.warn_at is not None)
    return min(found, default=None)


def _name(event: Event) -> str:
    return event.entry.position if event.entry is not None else f"message {event.message.id if event.message else ''}"


def _decided(run: Run, fed: list[Event], **outcome: Any) -> Decision:
    return Decision(
        openings=tuple(run.openings),
        closings=tuple(run.closings),
        again=() if run.ended else tuple(run.again.values()),
        withdrawn=(*run.withdrawn, *(run.again if run.ended else ())),
        halted=tuple(run.halted),
        told=run.told,
        taken_entries={event.entry.id: event.order for event in fed if event.entry is not None},
        taken_messages={event.message.id: event.order for event in fed if event.message is not None},
        delivered_messages=tuple(pk for pk, given in run.delivered.items() if given),
        returned_messages=tuple(pk for pk, given in run.delivered.items() if not given),
        markers=run.markers,
        status_text=run.status_text,
        attributes=run.attributes,
        answers=run.handlers.answers,
        rejected=run.handlers.rejected,
        **outcome,
    )


def _blocked(error: BaseException, place: str, *, misfit: bool) -> Decision:
    failure = failure_of(error)
    place = place or generators.raised_at(error)
    named = getattr(error, "line", "") or place in failure.message
    where = f" ({place})" if place and not named else ""
    return Decision(state=transitions.BLOCKED, failure=failure, waiting=f"{failure.brief}{where}", misfit=misfit)
