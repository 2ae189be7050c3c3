"""What all parts of the store share: the engine's database and its tables."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from itertools import islice
from typing import Any, TypeVar

from django.db import connections, models, transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import Case, Value, When

T = TypeVar("T")

CHUNK = 500  # ids or rows in one statement
STATEMENT = 4 * 1024 * 1024  # characters of arguments in one; MariaDB takes 16 MiB by default


class Connected:
    """A store on one database alias. ``clock`` replaces the database's clock, for tests in virtual time."""

    def __init__(self, alias: str = "default", *, clock: Callable[[], datetime] | None = None) -> None:
        self.alias = alias
        self.clock = clock

    @property
    def connection(self) -> BaseDatabaseWrapper:
        """This thread's connection."""
        return connections[self.alias]

    @property
    def vendor(self) -> str:
        """postgresql, mysql (MariaDB as well) or sqlite."""
        return self.connection.vendor

    def in_transaction(self) -> bool:
        """Whether the caller holds an open transaction on the engine's alias."""
        return self.connection.in_atomic_block

    def atomic(self) -> transaction.Atomic:
        """A transaction on the engine's alias, a savepoint inside one of the caller's."""
        return transaction.atomic(using=self.alias)

    def rows(self, model: type[models.Model]) -> models.QuerySet[Any]:
        """All rows of a table of the engine."""
        rows: models.QuerySet[Any] = model._base_manager.using(self.alias)
        return rows


def chunks(items: Iterable[T], size: int = CHUNK) -> Iterator[list[T]]:
    """The items in lists of at most ``size``."""
    rest = iter(items)
    while chunk := list(islice(rest, size)):
        yield chunk


def by_size(rows: Iterable[Any]) -> Iterator[list[Any]]:
    """Step rows in lists for one INSERT each."""
    some: list[Any] = []
    size = 0
    for row in rows:
        size += len(row.args) + len(row.options) + len(row.compensation)
        if some and (len(some) >= CHUNK or size > STATEMENT):
            yield some
            some, size = [], 0
        some.append(row)
    if some:
        yield some


def by_id(values: Mapping[int, Any], field: Any) -> Case | Value:
    """The value of each row of an UPDATE by its id."""
    if len(values) == 1:
        return Value(next(iter(values.values())), output_field=field)
    return Case(*(When(pk=pk, then=Value(value, output_field=field)) for pk, value in values.items()))
