"""What a body has left on this thread's connections, and would swallow whatever is written after it.

An open ``atomic``, autocommit that was turned off, a BEGIN of its own: nothing more is committed then, not the end of
the step and nothing of what this process does later, and closing the connection takes even that for an error to keep.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper

from django_app.store.connected import Connected

IN_TRANSACTION = 1  # of MySQL's status flags
UNDER_WAY = {1, 2, 3}  # of libpq's transaction states: active, in a transaction, in a failed one

log = logging.getLogger("durable_celery")


class _LeftOpenError(Exception):
    """Rolls a block back that nobody else will leave."""


class Leftovers(Connected):
    """Looks around a body."""

    def before_body(self) -> Mapping[str, int]:
        """In how many blocks of a transaction this thread is, by database."""
        return {one.alias: len(one.atomic_blocks) for one in connections.all(initialized_only=True)}

    def after_body(self, before: Mapping[str, int]) -> Sequence[str]:
        """Roll back what the body has left open, and name the databases on which that may have taken work with it."""
        return [
            one.alias for one in connections.all(initialized_only=True) if _put_right(one, before.get(one.alias, 0))
        ]


def _put_right(connection: BaseDatabaseWrapper, depth: int) -> bool:
    lost = _leave_blocks(connection, depth)
    if depth or connection.connection is None:
        return lost
    off = connection.settings_dict["AUTOCOMMIT"] and not connection.autocommit
    open_below = _in_transaction(connection, asked=off)
    if off or open_below:
        try:
            connection.rollback()
            connection.set_autocommit(connection.settings_dict["AUTOCOMMIT"])
        except Exception:  # it may be in any state
            log.debug("putting connection %r right failed; the next use opens another", connection.alias, exc_info=True)
            connection.close()
    return bool(lost or open_below or (off and open_below is None))


def _leave_blocks(connection: BaseDatabaseWrapper, depth: int) -> bool:
    lost = False
    while connection.in_atomic_block and len(connection.atomic_blocks) > depth:
        lost, error = True, _LeftOpenError()
        try:
            connection.atomic_blocks[-1].__exit__(_LeftOpenError, error, None)
        except Exception:  # the block is left all the same
            log.debug("rolling back on %r failed", connection.alias, exc_info=True)
    return lost


def _in_transaction(connection: BaseDatabaseWrapper, *, asked: bool) -> bool | None:
    """Whether the driver knows of an open transaction, on MySQL after it has ``asked``; None where it does not say."""
    raw: Any = connection.connection
    if connection.vendor == "postgresql":
        return raw.info.transaction_status in UNDER_WAY
    if connection.vendor == "sqlite":
        return bool(raw.in_transaction)
    if asked and hasattr(raw, "server_status"):
        # The answer to a query with rows (INSERT ... RETURNING too) leaves the flags as they were.
        with suppress(Exception), connection.cursor() as cursor:
            cursor.execute("DO 0")
    status = getattr(raw, "server_status", None)
    return None if status is None else bool(status & IN_TRANSACTION)
