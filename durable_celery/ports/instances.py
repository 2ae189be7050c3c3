"""Starting an instance, and an instance as it is read."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

from durable_celery.core.journal import Journal


@dataclass(frozen=True, slots=True, kw_only=True)
class NewMessage:
    """A message to store. ``dedupe`` (a signal_id or update_id) makes a second one with the same value a no-op."""

    kind: str
    name: str
    payload: str
    dedupe: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredUpdate:
    """An update as its sender finds it. ``answer`` is an encoded ``core.handlers.Answer``, None while no turn took it.

    A rejected one has never been part of the instance.
    """

    id: int
    name: str
    rejected: bool
    answer: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class NewInstance:
    """An instance to insert, with the rules for its key (``conflict``, ``reuse`` as in API.md)."""

    id: UUID
    name: str
    version: int
    args: str
    key: str | None = None
    conflict: str = "use_existing"
    reuse: str = "allow"
    created_at: datetime
    start_at: datetime
    look_at: datetime
    queue: str = ""
    priority: int | None = None
    deadline_at: datetime | None = None
    expected_at: datetime | None = None
    attributes: Mapping[str, Any] = field(default_factory=dict)
    memo: Mapping[str, Any] = field(default_factory=dict)
    context: Mapping[str, Any] = field(default_factory=dict)
    subject: Any = None
    parent_id: UUID | None = None
    parent_position: str = ""
    parent_close: str = "cancel"
    messages: Sequence[NewMessage] = ()
    same_call: Callable[[str, str], bool] | None = field(default=None, repr=False, compare=False)

    def is_same_call(self, args: str) -> bool:
        """Whether an instance that was started with these encoded arguments was started by this call."""
        return args == self.args or (self.same_call is not None and self.same_call(args, self.args))


@dataclass(frozen=True, slots=True, kw_only=True)
class Created:
    """What became of a NewInstance: its own row (``created``), or the one that had its id or its key already."""

    id: UUID
    created: bool
    state: str
    args: str
    start_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceRow:
    """An instance as a turn, a handle or a page needs it. ``turn`` is the number of the last committed turn (0: none).

    ``turn_at`` is now() of that turn. ``blocked_by`` are the fingerprints that have tried this block, or that do not
    fit this journal. ``left_at``: since when it is left to workers of other code.
    ``closing_as`` is the final state a COMPENSATING instance goes to. ``turn_deaths``: turns since the last committed
    one that took their process along; ``turn_begun_at``: of a late one that was begun and not committed yet.
    """

    id: UUID
    chain_id: UUID
    run_number: int
    name: str
    version: int
    key: str | None
    state: str
    revision: int
    turn: int
    turn_at: datetime | None
    args: str
    result: str | None
    failure: str | None
    waiting_for: str
    status_text: str
    blocked_by: tuple[str, ...]
    left_at: datetime | None
    closing_as: str
    paused_at: datetime | None
    created_at: datetime
    start_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    deadline_at: datetime | None
    queue: str
    priority: int | None
    parent_id: UUID | None
    parent_position: str
    attributes: Mapping[str, Any]
    context: Mapping[str, Any]
    turn_deaths: int = 0
    turn_begun_at: datetime | None = None
    cancel_requested_at: datetime | None = None  # also by a deadline
    parent_chain_id: UUID | None = None  # its parent's id for people; known where a turn is loaded


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """An instance with its whole journal, and whether anything in it was not taken in yet."""

    instance: InstanceRow
    journal: Journal


@dataclass(frozen=True, slots=True, kw_only=True)
class Stuck:
    """An instance (its run) that has become stuck at ``since``: open for longer than expected, or a signal is late."""

    instance_id: UUID
    name: str
    key: str | None
    since: datetime
    waiting_for: str
