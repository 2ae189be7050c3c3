"""Which process talks to the database over which connection. TEST_CONNECT_AT_IMPORT=1 opens one in the main process."""

from __future__ import annotations

import os

from django.db import connection

from durable_celery import Workflow, gather, step, workflow

BACKENDS = {"postgresql": "SELECT pg_backend_pid()", "mysql": "SELECT CONNECTION_ID()"}


def backend() -> int:
    """The number the database knows this process's connection by; 0 where it has none."""
    if connection.vendor not in BACKENDS:
        return 0
    with connection.cursor() as cursor:
        cursor.execute(BACKENDS[connection.vendor])
        number: int = cursor.fetchone()[0]
    return number


AT_IMPORT = backend() if os.environ.get("TEST_CONNECT_AT_IMPORT") else 0


@step
def who_talks() -> tuple[int, int, int]:
    """The process, its connection, and the one the main process opened when it imported this."""
    return os.getpid(), backend(), AT_IMPORT


@workflow
def talking(count: int) -> Workflow[list[tuple[int, int, int]]]:
    first = yield from who_talks()
    return [first, *(yield from gather(*(who_talks() for _ in range(count - 1))))]
