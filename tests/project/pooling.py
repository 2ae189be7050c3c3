"""Every transaction on a connection of its own, as behind a pool that hands one out for each transaction.

Whatever lives longer than a transaction is gone with it: session locks, settings, temporary tables, open cursors.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.db import connections


@contextmanager
def each_transaction_anew() -> Iterator[list[int]]:
    """While open, connections are closed after each transaction; the list counts how often, in its one item."""
    closed = [0]
    opening: set[int] = set()  # by a statement; what is said to a new connection is said on it
    wrapper: Any = type(connections["default"])
    original = wrapper.cursor

    def cursor(self: Any) -> Any:
        # Outside of a transaction each statement is one. SQLite's BEGIN comes through here too, before its transaction.
        if self.in_atomic_block or not self.autocommit or self.connection is None or id(self) in opening:
            return original(self)
        closed[0] += 1
        self.close()
        opening.add(id(self))
        try:
            return original(self)
        finally:
            opening.discard(id(self))

    wrapper.cursor = cursor
    try:
        yield closed
    finally:
        wrapper.cursor = original
