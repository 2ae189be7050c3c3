"""Locks, deadlocks and failed serialisations pass: the same is tried again, and none ever counts as a failure."""

from __future__ import annotations

import functools
import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

from django.db import DatabaseError, IntegrityError

if TYPE_CHECKING:
    from django_app.store.connected import Connected

P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S", bound="Connected")

PATIENCE = 10.0  # seconds from the first try after which an error is an error
FIRST_PAUSE, LONGEST_PAUSE = 0.01, 0.5
SQLSTATES = {"40001", "40P01", "55P03"}  # serialisation failure, deadlock, lock not available
MYSQL_CODES = {1020, 1205, 1213, 3572}  # changed since last read, lock wait time-out, deadlock, NOWAIT


class Busy(Exception):  # noqa: N818 - caught where it is raised for
    """A lock asked for with NOWAIT is held by someone else."""


def retried(method: Callable[Concatenate[S, P], R]) -> Callable[Concatenate[S, P], R]:
    """Repeat the method while the database says that a lock was in the way, up to about ten seconds.

    Not inside a transaction of the caller: that one is broken, and only its owner can repeat it.
    """

    def call(store: S, /, *args: P.args, **kwargs: P.kwargs) -> R:
        give_up_at = time.monotonic() + PATIENCE
        pause = FIRST_PAUSE
        while True:
            try:
                return method(store, *args, **kwargs)
            except DatabaseError as error:
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
    if error.args and isinstance(error.args[0], int):
        return error.args[0] in MYSQL_CODES
    sqlstate: Any = getattr(error.__cause__, "sqlstate", None) or getattr(error.__cause__, "pgcode", None)
    if sqlstate is not None:
        return sqlstate in SQLSTATES
    text = str(error)
    return "database is locked" in text or "database table is locked" in text or "database schema is locked" in text
