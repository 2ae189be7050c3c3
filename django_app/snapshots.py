"""Copies of SQLite databases, for processes that a test kills."""

from __future__ import annotations

import sqlite3
from contextlib import closing, suppress
from pathlib import Path

from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.utils import load_backend

from durable_celery.errors import UsageError

_left: list[BaseDatabaseWrapper] = []  # of the parent of a forked process; collected, they would be closed


def copy_into(folder: Path, alias: str) -> None:
    """The database of ``alias`` and each other in use as a file named by its alias.

    ``UsageError`` where no other process could see the same.
    """
    for connection in _in_use(alias):
        if connection.vendor != "sqlite":
            raise UsageError(
                f"crash_everywhere(real=True) works on copies of the databases, made of SQLite alone; alias "
                f"{connection.alias!r} is {connection.vendor}. Leave real=True out, or run this test on SQLite"
            )
        if connection.in_atomic_block:
            raise UsageError(
                f"crash_everywhere(real=True) inside a transaction (alias {connection.alias!r}): another process would "
                "not see what is not committed. Use django_db(transaction=True), transactional_db or "
                "TransactionTestCase, or leave real=True out"
            )
        with suppress(AssertionError):  # a test case may forbid this alias; then its code has no use for it either
            connection.ensure_connection()
        if connection.connection is None:
            continue
        with closing(sqlite3.connect(folder / connection.alias)) as copy:
            connection.connection.backup(copy)


def use(folder: Path, alias: str) -> None:
    """In a forked process: its connections to the copies. Those of the parent are neither used nor closed."""
    for connection in _in_use(alias):
        if not (folder / connection.alias).exists():
            continue
        _left.append(connection)
        settings = {**connection.settings_dict, "NAME": str(folder / connection.alias)}
        made = load_backend(settings["ENGINE"]).DatabaseWrapper(settings, connection.alias)
        connections[connection.alias] = made
        with made.cursor() as cursor:
            cursor.execute("PRAGMA synchronous = OFF")  # a killed process loses nothing that it has written


def _in_use(alias: str) -> list[BaseDatabaseWrapper]:
    """An SQLite file may be without a connection just now; the parent's of a server must not be shared."""
    return [
        one for one in connections.all() if one.alias == alias or one.vendor == "sqlite" or one.connection is not None
    ]
