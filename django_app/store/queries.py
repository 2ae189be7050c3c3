"""No database query in a workflow body: it would see other rows on replay."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from django.db import connections

from durable_celery.errors import UsageError

SHOWN = 100  # characters of the statement in the error


@contextmanager
def queries_refused() -> Iterator[None]:
    """While open, a query of this thread, on whatever alias, raises ``UsageError``.

    Around ``save()`` and its like Django then marks the caller's transaction, a test's for example, as broken. No
    query has reached the database, so it is as whole as before.
    """
    with ExitStack() as stack:
        for connection in connections.all():
            stack.callback(setattr, connection, "needs_rollback", connection.needs_rollback)
            stack.enter_context(connection.execute_wrapper(_refuse))
        yield


def _refuse(execute: Callable[..., Any], sql: Any, params: Any, many: bool, context: Any) -> Any:
    raise UsageError(
        f"a database query in a workflow body is refused: {shortened(sql)}; move it into a step "
        "(@step def load(...): ..., then value = yield from load(...))"
    )


def shortened(sql: Any) -> str:
    """A statement as errors show it: on one line, its beginning."""
    text = " ".join(str(sql).split())
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}..."
