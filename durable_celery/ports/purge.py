"""What is removed once nobody needs it any more."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol
from uuid import UUID


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedRoot:
    """The last run of a chain that has no parent: by its end the tree below ``root_id`` is found."""

    run_id: UUID
    root_id: UUID
    finished_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Removed:
    """Rows that one short transaction removed."""

    instances: int = 0
    steps: int = 0
    messages: int = 0


class PurgeStore(Protocol):
    """The part of the store that removes; each method is its own short transaction."""

    def hold_purge(self, now: datetime, until: datetime | None, held: datetime | None = None) -> bool:
        """Take the place of the one purge up to ``until``, or keep (None: leave) the one ``held``; False: another's."""

    def ended_roots(self, before: datetime, after: EndedRoot | None, limit: int) -> Sequence[EndedRoot]:
        """Chains without a parent that ended before ``before``, the longest ended first, from behind ``after`` on."""

    def doom(self, root_ids: Collection[UUID], before: datetime, *, mark: bool = True) -> Collection[UUID]:
        """Of these trees those in which everything ended before ``before``; with ``mark`` none can be retried now."""

    def count_trees(self, root_ids: Collection[UUID]) -> Removed:
        """The rows of these trees."""

    def remove_some(self, root_ids: Collection[UUID]) -> Removed | None:
        """Remove some rows of doomed trees; None if nothing is left of them."""

    def remove_leases(self, before: datetime) -> int:
        """Remove leases that were declared dead before ``before``."""
