"""Faults of the database, for ``durable_celery.faults``: a connection that breaks, a deadlock that is reported."""

from __future__ import annotations

import os
import socket
from contextlib import suppress
from typing import Any

from django.db import OperationalError

from durable_celery import runtime

MYSQL_DEADLOCK = (1213, "Deadlock found when trying to get lock; try restarting transaction")
POSTGRESQL_DEADLOCK = "40P01"


class BreakingDatabase:
    """``faults.Database`` on the alias of the engine's store."""

    def cut(self) -> None:
        """Shut the socket of this thread's connection; its owner learns of it by the next statement.

        SQLite has none: there it is an error of the file, at once.
        """
        connection = _connection()
        if connection.vendor == "sqlite":
            raise OperationalError("disk I/O error")
        connection.ensure_connection()
        with suppress(OSError):
            _shut(connection.connection)

    def deadlock(self) -> BaseException:
        """As Django raises it."""
        vendor = _connection().vendor
        if vendor == "mysql":
            return OperationalError(*MYSQL_DEADLOCK)
        if vendor == "sqlite":
            return OperationalError("database is locked")
        error = OperationalError("deadlock detected")
        error.__cause__ = _Deadlock(error.args[0])
        return error


class _Deadlock(Exception):  # noqa: N818 - stands for the driver's
    sqlstate = POSTGRESQL_DEADLOCK


def _connection() -> Any:
    store: Any = runtime.current().store
    return store.connection


def _shut(driver: Any) -> None:
    """Through a copy of the descriptor: the driver closes its own. mysqlclient shows none, and is closed."""
    held = getattr(driver, "_sock", driver)  # PyMySQL's; psycopg's connection answers itself
    if not hasattr(held, "fileno"):
        driver.close()
        return
    with socket.socket(fileno=os.dup(held.fileno())) as copy:
        copy.shutdown(socket.SHUT_RDWR)
