"""The store of the testing kit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from pathlib import Path
from typing import Protocol
from uuid import UUID

from durable_celery.ports.store import Store


class TestedStore(Store, Protocol):
    """The store of the testing kit. What is open when it is made is not the tested code's: it counts as committed."""

    begun: list[tuple[UUID, str, str]]  # run, position and name of each step that a worker began, in order

    def runs_of(self, chain_id: UUID) -> Sequence[UUID]:
        """The runs of a chain, in order."""

    def run_committed(self) -> None:
        """Run the ``on_commit`` calls that wait only for the transaction around the test."""

    def lose_committed(self) -> None:
        """Forget them, but those with an attribute ``outlives``: the process that would have run them is dead."""

    def undone(self) -> AbstractContextManager[None]:
        """What the block writes, on any alias, is gone after it."""

    def tree(self, chain_id: UUID) -> Mapping[UUID, str]:
        """The runs of a chain and of its children, theirs and so on, each with a name that says where it stands."""

    def all_ended(self, chain_id: UUID) -> bool:
        """Whether all of these have ended."""

    def next_message(self) -> datetime | None:
        """When the tick looks at the oldest message that no turn took in, of those that came minutes ago at most."""

    def copy_databases(self, folder: Path) -> None:
        """Copy each database in use into files there; ``UsageError`` where no other process could go on with those."""

    def use_copies(self, folder: Path) -> None:
        """In a forked process: work on such copies, and leave the connections of the parent alone."""
