"""The members of a map, as the store inserts and finds them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID


@dataclass(frozen=True, slots=True, kw_only=True)
class NewMembers:
    """Rows to insert below a map, one for each encoded call, page by page.

    ``limit``: only so many may start now, the others are HELD. The times are those of members that may start.
    """

    name: str
    calls: Callable[[], Iterable[str]]
    options: str
    queue: str
    join: str
    limit: int | None
    start_by_at: datetime | None
    end_by_at: datetime | None
    look_at: datetime
    shielded: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedMembers:
    """Members of one map that ended a while ago; ``ids`` of their rows, ``join`` what they wait for together."""

    instance_id: UUID
    join: str
    ids: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How many members of an open map have ended, how many of them failed, of how many."""

    ended: int
    failed: int
    members: int
