"""Replay: drive a body through its journal, then through what is new, and say what that means. Pure."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

from durable_celery.core import journal as journals
from durable_celery.core import scope, transitions
from durable_celery.core.commands import Command
from durable_celery.core.decision import Decision
from durable_celery.core.failure import failure_of
from durable_celery.core.journal import Event, Journal
from durable_celery.core.run import Run
from durable_celery.errors import ReplayError, UsageError, WorkflowError

_refusing: list[Any] = []  # bodies that would not close; kept so that no garbage collector runs them


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
    info: Any = None,
) -> Decision:
    """What the body does when it sees everything that is stored and not taken in yet.

    ``turn`` is the number of the turn being taken (1 for the first), ``now`` its time, ``started_at`` the time of turn 1
    (None if this is it). Never raises for what the body does: a bug, a mismatch or a wrong use is a BLOCKED decision.
    The body is closed on return.
    """
    run = Run(journal, turn=turn, now=started_at or now, decode=decode, encode=encode, adapt=adapt, info=info)
    fed: list[Event] = []
    problem: BaseException | None = None
    with scope.driving(run):
        try:
            _drive(run, body, args, kwargs, journals.events(journal, turn=turn, now=now), fed, first=turn == 1, now=now)
        except (ReplayError, UsageError) as error:
            problem = error
        except Exception as error:  # noqa: BLE001 - a stored value that cannot be decoded, a broken adapter
            problem = error
        place = run.where() if not run.ended else ""
        if not run.leave():
            _refusing.append(run)
            problem = problem or UsageError(f"the body cannot be left: it yields again when it is closed ({place})")
    if problem is not None:
        return _blocked(problem, place)
    return _decide(run, fed, fails_on)


def _drive(
    run: Run,
    body: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    events: list[Event],
    fed: list[Event],
    *,
    first: bool,
    now: datetime,
) -> None:
    run.replaying = not first
    run.start(body, args, kwargs)
    for event in events:
        if run.ended:
            return
        if event.turn == run.turn:
            run.now = now
            fed.append(event)
        run.feed(event)
    run.replaying = False


def _decide(run: Run, fed: list[Event], fails_on: tuple[type[BaseException], ...]) -> Decision:
    common: dict[str, Any] = dict(
        openings=run.openings,
        closings=run.closings,
        withdrawn=run.withdrawn,
        taken_entries={e.entry.id: e.order for e in fed if e.entry is not None},
        taken_messages={e.message.id: e.order for e in fed if e.message is not None},
        markers=run.markers,
        status_text=run.status_text,
        attributes=run.attributes,
    )
    if not run.ended:
        return Decision(state=transitions.WAITING, waiting=run.waiting(), **common)
    if run.error is None:
        if isinstance(run.value, Command):
            return _blocked(UsageError(f"the body returned {run.value.describe()}; write return (yield from ...)"), "")
        if type(run.value).__name__ == "generator":
            return _blocked(
                UsageError(
                    f"the body returned the generator {run.value.__name__}(...); use yield from {run.value.__name__}(...)"
                ),
                "",
            )
        return Decision(state=transitions.COMPLETED, value=run.value, **common)
    if isinstance(run.error, (WorkflowError, *fails_on)):
        return Decision(state=transitions.FAILED, failure=failure_of(run.error), **common)
    return _blocked(run.error, "")


def _blocked(error: BaseException, place: str) -> Decision:
    failure = failure_of(error)
    where = f" ({place})" if place and place not in failure.message else ""
    return Decision(state=transitions.BLOCKED, failure=failure, waiting=f"{failure.brief}{where}")
