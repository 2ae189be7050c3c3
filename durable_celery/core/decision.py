"""What one turn decided: pure values that the engine turns into one commit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

from durable_celery.core.failure import Failure

if TYPE_CHECKING:
    from durable_celery.core.mapping import Members


@dataclass(frozen=True, slots=True, kw_only=True)
class Opening:
    """A row that the body asked for and the journal does not have yet. Fields as in ``ports.NewEntry``."""

    position: str
    kind: str
    name: str = ""
    state: str
    args: str = ""
    members: int = 0
    options: str = ""
    group: str = ""
    join: str = ""
    limited: bool = False
    due_at: datetime | None = None
    start_by_at: datetime | None = None
    end_by_at: datetime | None = None
    compensation: str = ""
    queue: str = ""
    result: str | None = None
    shielded: bool = False  # runs though the run is being cancelled: shielded, cleanup, compensation
    map: Members | None = None  # rows below it that no journal has


@dataclass(frozen=True, slots=True, kw_only=True)
class Closing:
    """A timer, signal wait or gather that ended in this turn; named by position, since it may be as new as the turn."""

    position: str
    state: str
    result: str | None = None
    failure: Failure | None = None
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Again:
    """A poll's result was not liked: its row runs again from ``due_at`` on."""

    position: str
    due_at: datetime
    start_by_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Continuation:
    """What a run that continues goes on as: the workflow and its encoded arguments.

    ``unread`` are ids of the messages that it had taken in and that nobody in it asked for.
    """

    name: str
    version: int
    args: str
    unread: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """The outcome of replaying a body and feeding it what is new.

    ``state`` is WAITING, COMPLETED, FAILED, CANCELLED, CONTINUED (as ``continuation``) or BLOCKED. A BLOCKED decision
    carries its failure and nothing else: it appends nothing and takes nothing in. ``taken_entries`` and
    ``taken_messages`` map row ids to their order in this turn; ``again`` are polls whose result is not taken in.
    ``withdrawn`` are positions nobody waits for any more, ``told`` those of children to be asked to end, with the
    reason. ``delivered_messages`` were given to a wait or a handler in this turn, ``returned_messages`` in an earlier
    one, and are unread again. ``answers`` and ``rejected``
    map ids of update messages to their encoded ``handlers.Answer``; a rejected one is not among those taken.
    ``warn_at``: when the first of the open waits counts as stuck.
    """

    state: str
    value: Any = None
    failure: Failure | None = None
    openings: tuple[Opening, ...] = ()
    closings: tuple[Closing, ...] = ()
    again: tuple[Again, ...] = ()
    withdrawn: tuple[str, ...] = ()
    halted: tuple[str, ...] = ()  # maps whose members that no worker has claimed are given up
    told: Mapping[str, str] = field(default_factory=dict)
    taken_entries: Mapping[int, int] = field(default_factory=dict)
    taken_messages: Mapping[int, int] = field(default_factory=dict)
    delivered_messages: tuple[int, ...] = ()
    returned_messages: tuple[int, ...] = ()
    continuation: Continuation | None = None
    markers: Mapping[str, str] = field(default_factory=dict)
    status_text: str | None = None
    attributes: Mapping[str, Any] = field(default_factory=dict)
    waiting: str = ""
    misfit: bool = field(default=False, compare=False)  # BLOCKED, as the journal is other code's, which may go on
    answers: Mapping[int, str] = field(default_factory=dict)
    rejected: Mapping[int, str] = field(default_factory=dict)
    warn_at: datetime | None = None
