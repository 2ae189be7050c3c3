"""Attempts of ``atomic`` steps: the fence, the body's own writes and the result in one transaction.

Rules of this file:
- The row is read first and written last; no lock on it is held while the body runs. Whoever takes the row meanwhile
  (a time-out, a cancel, a lease that ran out) need not wait for the body, and the guarded last UPDATE then finds
  nothing and takes the body's effects back. Holding the row instead would let every sweep wait for users' code.
- SQLite has one writer at a time: there the first statement is a write, so that the body can never find the lock gone.
- What a body says and asks in a transaction, this one or one that it has begun, goes over a connection of its own: on
  the body's a heartbeat would lock the row, nobody would see it, and a look might see what was there at its start.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from datetime import datetime
from functools import partial
from typing import Any, TypeVar

from django.db import DatabaseError, InterfaceError, OperationalError, connections
from django.db.models import F

from django_app.models import StepResult
from django_app.store.attempts import Attempts
from django_app.store.queries import shortened
from django_app.store.retries import retried
from durable_celery.core import transitions as t
from durable_celery.errors import UsageError
from durable_celery.ports import Heartbeat, OpenStep

T = TypeVar("T")

ROLLS_ALL_BACK = {1020, 1213}  # MySQL: after these the transaction is gone, whoever catches the error
READS = re.compile(
    r"[\s(]*(SELECT|SHOW|EXPLAIN|DESCRIBE|DESC|PRAGMA|SET|RESET|VALUES|TABLE|DECLARE|FETCH|CLOSE|USE"
    r"|BEGIN|START|COMMIT|ROLLBACK|SAVEPOINT|RELEASE)\b",
    re.IGNORECASE,
)
COMMON_TABLE = re.compile(r"[\s(]*WITH\b(?!.*\b(INSERT\s+INTO|UPDATE|DELETE\s+FROM|MERGE\s+INTO)\b)", re.I | re.DOTALL)


class AtomicAttempts(Attempts):
    """Transactions that hold a body."""

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """A transaction on the engine's alias; a write of this thread on another alias raises ``UsageError``."""
        with ExitStack() as stack:
            for connection in connections.all():
                if connection.alias != self.alias:
                    stack.enter_context(
                        connection.execute_wrapper(partial(_refuse_writes, connection.alias, self.alias))
                    )
            stack.enter_context(self.atomic())
            yield

    @contextmanager
    def atomic_attempt(self, step: OpenStep) -> Iterator[bool]:
        """The transaction of one attempt of an ``atomic`` step; gives whether its token is still current.

        An exception rolls back. So does a deadlock that the body has caught, where the database had undone everything
        before it: it is raised again at the end.
        """
        outermost = not self.in_transaction()
        seen = _Seen()
        with self.transaction(), self.connection.execute_wrapper(seen):
            before, _here.alone = getattr(_here, "alone", False), outermost
            try:
                yield self._is_current(step)
            finally:
                _here.alone = before
            if seen.error is not None:
                raise seen.error

    def _is_current(self, step: OpenStep) -> bool:
        row = self.rows(StepResult).filter(pk=step.id, token=step.token, attempt=step.attempt, state__in=t.CLAIMED)
        return bool(row.update(token=F("token"))) if self.vendor == "sqlite" else bool(row.exists())

    @retried
    def atomic_committed(self, step: OpenStep) -> bool:
        """Whether the transaction of this attempt was committed, in which the row keeps its token though it ended.

        Waits for a commit the database is still about, after a connection that was lost over it.
        """
        row = self.rows(StepResult).filter(pk=step.id, token=step.token, attempt=step.attempt)
        with self.atomic():
            if self.connection.features.has_select_for_update:
                row = row.select_for_update()
            return row.values_list("state", flat=True).first() in (t.SUCCEEDED, t.EXTERNAL)

    def transient(self, error: BaseException | None) -> bool:
        """Whether it is an error of the database that another try may not meet: locks, deadlocks, lost connections."""
        return isinstance(error, (OperationalError, InterfaceError))

    def joined(self) -> bool:
        """Whether an attempt that begins on this thread is part of a transaction that is not its own."""
        return self.in_transaction() and not getattr(_here, "alone", False)

    def heartbeat(
        self,
        step_id: int,
        token: str,
        details: str | None,
        now: datetime,
        look_at: datetime | None,
        *,
        apart: bool = False,
    ) -> Heartbeat:
        """Note a sign of life of the current attempt; ``apart``: at once and for all to see.

        Not of an ``atomic`` one on SQLite: while it is open nobody else can write, so none can cancel or judge it.
        """
        beat = partial(super().heartbeat, step_id, token, details, now, look_at)
        if not apart or not self.in_transaction():
            return beat()
        if self.vendor == "sqlite":
            return Heartbeat(current=True) if getattr(_here, "alone", False) else beat()
        return self._apart(beat)

    def asked(self, step_id: int, token: str, *, apart: bool = False) -> Heartbeat:
        """What a heartbeat would learn, without one; ``apart``: as it is now.

        Not in a transaction on SQLite: a read would fix what it sees, and the body's next write would be refused.
        """
        look = partial(super().asked, step_id, token)
        if not apart or not self.in_transaction():
            return look()
        return Heartbeat(current=True) if self.vendor == "sqlite" else self._apart(look)

    def _apart(self, call: Callable[[], T]) -> T:
        def on_its_own() -> T:
            try:
                return call()
            finally:
                self.connection.close()

        with ThreadPoolExecutor(max_workers=1) as thread:
            return thread.submit(on_its_own).result()


_here = threading.local()  # ``alone``: this thread is in an atomic attempt that is no part of a transaction of others


class _Seen:
    """Remembers the error after which nothing of the transaction is left."""

    def __init__(self) -> None:
        self.error: DatabaseError | None = None

    def __call__(self, execute: Callable[..., Any], sql: Any, params: Any, many: bool, context: Any) -> Any:
        try:
            return execute(sql, params, many, context)
        except DatabaseError as error:
            if error.args and error.args[0] in ROLLS_ALL_BACK:
                self.error = error
            raise


def _refuse_writes(
    alias: str, engine: str, execute: Callable[..., Any], sql: Any, params: Any, many: bool, context: Any
) -> Any:
    text = str(sql)
    if READS.match(text) or COMMON_TABLE.match(text):
        return execute(sql, params, many, context)
    raise UsageError(
        f"a write on database {alias!r} in the body of an atomic step is refused: {shortened(text)}; its result is "
        f"committed on {engine!r} (DURABLE_CELERY['DATABASE']), and one transaction holds one database. "
        "Move the write into a step without atomic=True and make it idempotent by current_step().idempotency_key"
    )
