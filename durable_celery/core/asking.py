"""What a body would answer: it is driven to where its last committed turn left it, asked, and left. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from types import FrameType
from typing import Any

from durable_celery.core import journal as journals
from durable_celery.core import replay, scope
from durable_celery.core.commands import Command
from durable_celery.core.journal import Journal
from durable_celery.core.run import Run
from durable_celery.errors import NonDeterminism


def ask(
    body: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    journal: Journal,
    *,
    name: str,
    values: Sequence[Any],
    turn: int,
    ended: bool,
    now: datetime,
    started_at: datetime | None,
    decode: Callable[[str], Any],
    encode: Callable[[Any, str], str],
    adapt: Callable[[Any], Command[Any] | None] = lambda yielded: None,
    fails_on: tuple[type[BaseException], ...] = (),
    interrupts: Callable[[BaseException], bool] = replay.not_the_bodys,
    in_finally: Callable[[FrameType], bool] = lambda frame: False,
    info: Any = None,
) -> Any:
    """The answer of query ``name`` after ``turn`` turns; before the first, the body as it stands at its first yield.

    Raises what the query's function raises, ``UsageError`` for an unknown query, and ``NonDeterminism`` where the code
    does not fit the journal. Of an instance that has ``ended``, the last turn may have done so without its body (a
    cancel before the start, a time-out of its cleanup): then the state before that turn counts.
    """

    def driven(through: int) -> Any:
        recorded = journal if through else Journal(instance_id=journal.instance_id)
        run = Run(
            recorded, turn=through + 1, now=started_at or now, decode=decode, encode=encode, adapt=adapt,
            fails_on=fails_on, interrupts=interrupts, in_finally=in_finally, recorded_only=through > 0, info=info,
        )  # fmt: skip
        events = journals.events(recorded, turn=through + 1, now=now)
        with scope.driving(run):
            return replay.then(run, body, args, kwargs, events, lambda: run.handlers.ask(name, values))

    try:
        return driven(turn)
    except NonDeterminism:
        if not ended or not turn:
            raise
        return driven(turn - 1)
