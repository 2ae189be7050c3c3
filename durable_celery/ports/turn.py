"""What one turn changes."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

from durable_celery.ports.instances import NewInstance
from durable_celery.ports.maps import NewMembers


@dataclass(frozen=True, slots=True, kw_only=True)
class NewEntry:
    """A row to insert. ``options`` is JSON: the policy and time-outs as they were at scheduling.

    ``group`` is the position of the gather it is a member of, ``join`` that of the outermost one: while any open row
    shares ``join``, an outcome needs no turn ("" means each outcome needs one). ``limited``: its group holds members
    back, so the end of one promotes the next.
    """

    position: str
    kind: str
    name: str
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
    look_at: datetime | None = None
    compensation: str = ""
    queue: str = ""
    result: str | None = None
    failure: str | None = None
    finished_at: datetime | None = None  # ended in the very turn that asked for it
    abandoned: bool = False
    shielded: bool = False  # runs though the run is being cancelled: shielded, cleanup, compensation
    attempt: int = 0  # 1 of a child, which is started with its row


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """A timer, signal wait or gather that this turn ended: its new state, and what to show as its result."""

    entry_id: int
    state: str
    result: str | None = None
    failure: str | None = None
    finished_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class NotLiked:
    """A poll that ran, with a result that is not what it waits for: it runs again from ``due_at`` on."""

    entry_id: int
    due_at: datetime
    start_by_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Successor:
    """The next run of a chain, for a run that ends CONTINUED; what is not here is carried over by the store.

    ``key`` is the chain's, ``before`` the workflow it ran until now: under another name the key moves along.
    ``unread`` are ids of messages the last run took in and nobody in it asked for.
    """

    id: UUID
    name: str
    version: int
    args: str
    key: str | None = None
    before: str = ""
    queue: str = ""
    priority: int | None = None
    expected_at: datetime | None = None
    look_at: datetime
    unread: Sequence[int] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnCommit:
    """All that one turn changes; applied in one transaction or not at all.

    ``revision`` is the one that was loaded. ``taken_entries`` and ``taken_messages`` map row ids to their order in this
    turn. ``withdrawn`` are entry ids no longer wanted: unclaimed ones become CANCELLED, claimed ones ABANDONED; both
    are marked ``abandoned``, so that no outcome of theirs is ever news. ``closes`` (a final state, or the body's end)
    re-reads messages under the mailbox lock. ``last_message`` is the highest message id this turn saw.
    ``left_messages`` are ids it saw and did not take in: with them the re-read is exact (ids become visible out of
    order); None judges by ``last_message`` alone. ``attributes`` replaces all of them (None and empty: unchanged).
    ``history_length`` is the number of rows after it (None: unchanged). ``misfits`` are the fingerprints that do not
    fit the journal.
    ``delivered_messages`` were given to a wait or a handler by this turn, ``returned_messages`` by an earlier one that
    turned out not to need them. ``chain_id`` is that of the run (None: it is the first of its chain).
    ``children`` are inserted with their rows in ``entries``, ``told`` are positions of earlier ones to be asked to end,
    with the encoded reason. ``parent`` is the row (run and position) that a final state ends. ``has_children``: at the
    end of the body each open one is dealt with by its ``parent_close``.
    ``again`` are polls to be run again, if nobody has done anything to them since.
    ``members`` are inserted below the maps at these positions; of ``halted`` maps those no worker has claimed are
    CANCELLED, of ``given_up_maps`` all members are given up.
    ``answers`` and ``rejected`` are those of updates by message id; ``warn_at`` is when the first open wait is stuck.
    """

    instance_id: UUID
    chain_id: UUID | None = None
    revision: int
    turn: int
    now: datetime
    state: str
    fingerprint: str = ""
    result: str | None = None
    failure: str | None = None
    closing_as: str = ""
    waiting_for: str = ""
    status_text: str | None = None
    attributes: Mapping[str, Any] | None = None
    history_length: int | None = None
    misfits: Sequence[str] = ()
    entries: Sequence[NewEntry] = ()
    taken_entries: Mapping[int, int] = field(default_factory=dict)
    taken_messages: Mapping[int, int] = field(default_factory=dict)
    delivered_messages: Collection[int] = ()
    returned_messages: Collection[int] = ()
    successor: Successor | None = None  # with state CONTINUED
    settled: Sequence[Settled] = ()
    again: Sequence[NotLiked] = ()
    withdrawn: Sequence[int] = ()
    members: Mapping[str, NewMembers] = field(default_factory=dict)
    halted: Sequence[str] = ()
    given_up_maps: Sequence[str] = ()
    markers: Mapping[str, str] = field(default_factory=dict)
    closes: bool = False
    last_message: int = 0
    left_messages: Sequence[int] | None = None
    look_at: datetime | None = None  # when the sweep must look at the instance itself again
    children: Sequence[NewInstance] = ()
    told: Mapping[str, str] = field(default_factory=dict)
    parent: tuple[UUID, str] | None = None
    has_children: bool = False
    warn_at: datetime | None = None
    answers: Mapping[int, str] = field(default_factory=dict)
    rejected: Mapping[int, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Dispatch:
    """A step row that may be claimed, as a message needs it."""

    step_id: int
    name: str
    queue: str = ""
    priority: int | None = None
    due_at: datetime | None = None  # not before this (a retry)
    close_after: float | None = None  # seconds one attempt may take
    look_after: float | None = None  # seconds after the claim at which the sweep must look
    task: str = ""  # it is an existing Celery task, and routed by this name; empty: a step of ours


@dataclass(frozen=True, slots=True, kw_only=True)
class Wake:
    """Another instance that a transaction gave something to do, to be hinted at after the commit.

    ``join``: it waits for many there, so only if none of them is open any more (``Store.has_news``). ``delay`` seconds.
    """

    instance_id: UUID
    queue: str = ""
    join: str | None = None
    delay: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed:
    """A committed turn: what is to be published now, in order."""

    dispatches: Sequence[Dispatch] = ()
    wakes: Sequence[Wake] = ()
