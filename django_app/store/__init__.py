"""The one place that writes the tables: ``DjangoStore`` is ``ports.Store`` on PostgreSQL, MariaDB, MySQL and SQLite."""

from __future__ import annotations

from contextlib import AbstractContextManager

from django_app.store.atomic import AtomicAttempts
from django_app.store.leftovers import Leftovers
from django_app.store.lost_turns import LostTurns
from django_app.store.processes import Processes
from django_app.store.queries import queries_refused
from django_app.store.reading import Reading
from django_app.store.repair import Repair
from django_app.store.secrets import Secrets
from django_app.store.slots import Slots
from django_app.store.stuck import StuckOnes
from django_app.store.sweeping import Sweeping
from django_app.store.tokens import Tokens
from django_app.store.turns import Turns


class DjangoStore(
    Slots, Repair, Turns, AtomicAttempts, Leftovers, Tokens, Processes, LostTurns, Sweeping, StuckOnes, Secrets, Reading
):
    """The store on one database alias. Holds nothing but its name, so any number may exist, in any thread.

    Each method is its own short transaction, repeated while locks are in its way; ``create`` and ``send`` join the
    caller's. ``clock`` replaces the database's clock, for tests in virtual time.
    """

    def refuse_queries(self) -> AbstractContextManager[None]:
        """While open, a database query of this thread raises ``UsageError``."""
        return queries_refused()


__all__ = ["DjangoStore"]
