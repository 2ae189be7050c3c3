"""Locks, deadlocks and failed serialisations pass: the same is tried again, and none ever counts as a failure."""

from __future__ import annotations

import functools
import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

from django.db import DatabaseError, IntegrityError

from durable_celery.errors import NotConfigured

if TYPE_CHECKING:
    from django_app.store.connected import Connected

P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S", bound="Connected")

PATIENCE = 10.0  # seconds from the first try after which an error is an error
FIRST_PAUSE, LONGEST_PAUSE = 0.01, 0.5
SQLSTATES = {"40001", "40P01", "55P03"}  # serialisation failure, deadlock, lock not available
MYSQL_CODES = {1020, 1205, 1213, 3572}  # changed since last read, lock wait time-out, deadlock, NOWAIT
NOT_THERE = {"42P01", "42703", 1146, 1054}  # PostgreSQL and MySQL: no such table, no such column
NOT_THERE_ON_SQLITE = ("no such table", "no such column", "has no column named")


class Busy(Exception):  # noqa: N818 - caught where it is raised for
    """A lock asked for with NOWAIT is held by someone else."""


def retried(method: Callable[Concatenate[S, P], R]) -> Callable[Concatenate[S, P], R]:
    """Repeat the method while the database says that a lock was in the way, up to about ten seconds.

    Not inside a transaction of the caller: that one is broken, and only its owner can repeat it. Where a table of ours
    or a column is missing, ``NotConfigured`` says what to do.
    """

    def call(store: S, /, *args: P.args, **kwargs: P.kwargs) -> R:
        give_up_at = time.monotonic() + PATIENCE
        pause = FIRST_PAUSE
        while True:
            try:
                return method(store, *args, **kwargs)
            except DatabaseError as error:
                if not_migrated(error):
                    raise NotConfigured(what_to_do(store.alias, error)) from error
                if store.in_transaction() or not passing(error) or time.monotonic() >= give_up_at:
                    raise
            # Jitter: writers that met once must not meet again and again.
            time.sleep(random.uniform(pause / 2, pause))
            pause = min(pause * 2, LONGEST_PAUSE)

    return functools.wraps(method)(call)


@contextmanager
def nowait() -> Iterator[None]:
    """Inside, an error that means "the lock is taken" is raised as ``Busy``."""
    try:
        yield
    except DatabaseError as error:
        if passing(error):
            raise Busy from error
        raise


def passing(error: BaseException) -> bool:
    """Whether trying again may help."""
    if isinstance(error, IntegrityError):
        return False
    code = _code(error)
    if code is not None:
        return code in SQLSTATES or code in MYSQL_CODES
    text = str(error)
    return "database is locked" in text or "database table is locked" in text or "database schema is locked" in text


def not_migrated(error: BaseException) -> bool:
    """Whether a table or column is not there; all that the store asks for are the engine's own."""
    code = _code(error)
    return code in NOT_THERE if code is not None else any(words in str(error) for words in NOT_THERE_ON_SQLITE)


def _code(error: BaseException) -> Any:
    """The number MySQL gives, or the SQLSTATE of PostgreSQL; None on SQLite."""
    if error.args and isinstance(error.args[0], int):
        return error.args[0]
    return getattr(error.__cause__, "sqlstate", None) or getattr(error.__cause__, "pgcode", None)


def is_ours(error: BaseException) -> bool:
    """Whether the table that such an error names is one of the engine's."""
    return "durable_celery_" in str(error)


def what_to_do(alias: str, error: BaseException) -> str:
    """What is missing, and the command that brings it."""
    command = "manage.py migrate" + ("" if alias == "default" else f" --database {alias}")
    first = str(error.args[-1]).splitlines()[0]
    return f"migrations of durable_celery are not applied to database {alias!r} ({first}); run {command}"
