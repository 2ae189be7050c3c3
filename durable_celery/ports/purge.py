"""What is removed once nobody needs it any more."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
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
