"""The database's clock, and the transaction of the caller."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timezone
from typing import Any

from django.db import InterfaceError, OperationalError, transaction
from django.db.models import DateTimeField, Func, Value
from django.db.models.expressions import Combinable
from django.db.models.functions import Now

from django_app.models.moments import MomentField
from django_app.store.connected import Connected
from django_app.store.retries import retried

READING = {"postgresql": "SELECT clock_timestamp() AT TIME ZONE 'UTC'", "mysql": "SELECT UTC_TIMESTAMP(6)"}


class Clock(Connected):
    """Time by the database."""

    def now(self) -> datetime:
        """The database's clock, aware UTC."""
        return self.measure()

    @retried
    def measure(self) -> datetime:
        """A fresh reading (one statement); SQLite has no clock but this machine's."""
        if self.clock is not None:
            return self.clock()
        reading = READING.get(self.vendor)
        if reading is None:
            return datetime.now(timezone.utc)
        with self.connection.cursor() as cursor:
            cursor.execute(reading)
            value: datetime = cursor.fetchone()[0]
        return value.replace(tzinfo=timezone.utc)

    def now_in_statement(self) -> Combinable:
        """The database's clock as part of a statement."""
        if self.clock is not None or self.vendor == "sqlite":
            return Value(self.now(), output_field=MomentField())
        if self.vendor == "mysql":
            return Func(Value(6), function="UTC_TIMESTAMP", output_field=DateTimeField())
        return Now()

    def close_connections(self) -> None:
        """Close this thread's connection, unless a transaction is open on it; the next use opens another."""
        if not self.in_transaction():
            self.connection.close()

    def reconnect(self) -> None:
        """Open this thread's connection anew, unless a transaction is open on it; raises if nobody is there."""
        self.close_connections()
        self.connection.ensure_connection()

    def away(self, error: BaseException) -> bool:
        """Whether the database was not reached, broke off, or was locked: the same may succeed later."""
        return isinstance(error, (OperationalError, InterfaceError))

    def on_commit(self, call: Callable[[], Any]) -> None:
        """Run ``call`` after the caller's transaction commits, at once if there is none; what it raises is logged."""
        transaction.on_commit(call, using=self.alias, robust=True)
