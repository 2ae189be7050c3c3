"""What a run had recorded up to a yield: the journal of a fork. Pure.

Rules of this file:
- The body is replayed through what is recorded and stopped where it asks for the ordinal that the fork begins with.
- The outcome that led it there is new in the fork, so that the fork's first turn is live from that ordinal on. Whatever
  came before is taken in as it was; whatever was open then is open again.
- Nothing that the body asked for later is part of it: neither rows nor messages nor markers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from types import FrameType
from typing import Any, Final

from durable_celery.core import identity, scope
from durable_celery.core import journal as journals
from durable_celery.core.commands import Command
from durable_celery.core.decision import Closing
from durable_celery.core.journal import CANCEL, DEADLINE, SEED, Entry, Event, Journal
from durable_celery.core.nodes import Node
from durable_celery.core.replay import not_the_bodys, then
from durable_celery.core.run import Run
from durable_celery.errors import BadValue, DurableError, NotRetryable

KEPT: Final = "kept"  # as it is, outcome and all
OPEN: Final = "open"  # the body waits for it, or will be told
GIVEN_UP: Final = "given up"  # nobody waits for it


@dataclass(frozen=True, slots=True, kw_only=True)
class Fork:
    """What to copy. ``turn`` and ``turn_at`` are those of the last outcome that counts as taken in (0: none).

    ``rows`` maps positions to KEPT, OPEN or GIVEN_UP. ``messages`` are ids taken in before, ``news`` the one that is
    new, if it is a message. ``markers`` maps keys to texts; ``cancelled``: the run had been asked to end by then.
    """

    turn: int
    turn_at: datetime | None
    rows: Mapping[str, str]
    messages: frozenset[int]
    news: int | None
    markers: Mapping[str, str]
    status_text: str | None
    cancelled: bool


def fork_before(
    position: str,
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
    info: Any = None,
) -> Fork:
    """The fork of a run at the top-level yield that ``position`` belongs to; the other arguments are ``replay``'s.

    ``BadValue`` if the run never came there, ``NotRetryable`` if this code does not fit what is recorded before it.
    """
    run = _Replay(
        ordinal_of(position), journal, turn=turn, now=started_at or now, decode=decode, encode=encode, adapt=adapt,
        fails_on=fails_on, interrupts=interrupts, in_finally=in_finally, recorded_only=True, info=info,
    )  # fmt: skip
    try:
        with scope.driving(run):
            then(run, body, args, kwargs, journals.events(journal, turn=turn, now=now), lambda: None)
    except _Reached:
        return run.cut()
    except DurableError as error:
        raise NotRetryable(
            f"this code does not fit what instance {journal.instance_id} has recorded before {position}: {error}",
            instance_id=journal.instance_id,
        ) from error
    raise BadValue(
        f"instance {journal.instance_id} never came to position {position}; it asked for {run.opened} "
        f"command{'s' if run.opened != 1 else ''} so far. durable history shows them",
        path="position",
        instance_id=journal.instance_id,
    )


def ordinal_of(position: Any) -> int:
    """The ordinal of the yield; ``BadValue`` if it is the position of none."""
    if not isinstance(position, str) or not identity.is_position(position):
        raise BadValue(
            f"position={position!r:.80} is not allowed, expected one such as '3' or '2.0.1', as history() shows them",
            path="position",
        )
    return identity.ordinal_of(position)


def renamed(marker: str, messages: Mapping[int, int]) -> str:
    """The key of a marker in a journal whose messages have other ids."""
    kind, _, rest = marker.partition(":")
    return f"{kind}:{messages[int(rest)]}" if kind == CANCEL and rest.isdigit() and int(rest) in messages else marker


class _Reached(BaseException):
    """The body asks for the ordinal."""


class _Replay(Run):
    """A run that notes what the body had asked for, and what had ended, until it stops before an ordinal."""

    def __init__(self, ordinal: int, journal: Journal, **options: Any) -> None:
        super().__init__(journal, **options)
        self.opened = 0  # yields so far
        self._stop_at = ordinal
        self._asked: dict[str, None] = {}
        self._read: dict[str, str] = {}
        self._ended: set[str] = set()  # before the last outcome
        self._ending: set[str] = set()  # by it
        self._lost: set[str] = set()
        self._events: list[Event] = []
        self._times = [self.now]

    def cut(self) -> Fork:
        """What to copy, with the last outcome new."""
        before, last = self._events[:-1], self._events[-1] if self._events else None
        taken = {event.entry.id for event in before if event.entry is not None}
        turn = 0 if last is None else last.turn
        if turn and (not before or before[-1].turn < turn):
            turn -= 1
        messages = [e.message for e in self._events if e.message is not None]
        rows = {position: self._mode(self.entries[position], taken) for position in self._asked}
        news = last.message.id if last is not None and last.message is not None else None
        return Fork(
            turn=turn,
            turn_at=self._times[-2] if turn and len(self._times) > 1 else None,
            rows=rows,
            messages=frozenset(message.id for message in messages if message.id != news),
            news=news,
            markers={**self._read, SEED: self.journal.markers.get(SEED, self.instance_id)},
            status_text=self.status_text,
            cancelled=any(message.kind in (CANCEL, DEADLINE) for message in messages),
        )

    def _mode(self, entry: Entry, taken: set[int]) -> str:
        if entry.position in self._lost:
            return GIVEN_UP
        return KEPT if entry.id in taken or entry.position in self._ended else OPEN

    # -- what a run tells on its way ---------------------------------------------------------------------------------

    def match(self, position: str, kind: str, name: str, members: int, entry: Entry | None) -> None:
        super().match(position, kind, name, members, entry)
        self._asked[position] = None

    def marker(self, key: str) -> str | None:
        text = super().marker(key)
        if text is not None:
            self._read[key] = text
        return text

    def close_row(self, closing: Closing) -> None:
        self._ending.add(closing.position)
        super().close_row(closing)

    def withdraw(self, position: str) -> None:
        self._lost.add(position)
        super().withdraw(position)

    def _mark(self, event: Event, label: str) -> None:
        super()._mark(event, label)
        self._ended |= self._ending
        self._ending = set()
        self._events.append(event)
        self._times.append(self.now)

    def _open(self, command: Command[Any]) -> Node:
        if self.opened + 1 == self._stop_at:
            raise _Reached
        self.opened += 1
        return super()._open(command)
