"""Purging very many closed instances beside as many that stay: how long the longest statement takes.

    TEST_DB=postgres TEST_BROKER=redis python -m benchmarks.purge --rows 1000000

``--rows`` closed instances are old, a tenth of them children, each with three steps, a message and a mailbox; half as
many again ended lately. Prints rows per second and the longest statements, and exits 1 if one took longer than 200 ms
or if anything was left, or gone, that should not be. The variables are those of the tests
(tests/project/surroundings.py).
"""

from __future__ import annotations

import argparse
import gc
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta, timezone
from typing import Any

LONGEST = 0.2  # seconds
STEPS = 3


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--seconds", type=float, help="stop after so long; the rest is as right as what is gone")
    options = parser.parse_args()
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.project.settings")
    import django

    from tests.project import surroundings

    surroundings.prepare()
    django.setup()
    from django.db import connection

    connection.creation.create_test_db(verbosity=0, autoclobber=True)
    try:
        return measure(options.rows, surroundings.DATABASE, options.seconds)
    finally:
        connection.creation.destroy_test_db(connection.settings_dict["NAME"], verbosity=0)


def measure(rows: int, database: str, patience: float | None) -> int:
    from django.db import connection

    from django_app.models import StepResult, WorkflowInstance
    from durable_celery.purging import purge
    from tests.store.filling import closed_instances

    now = datetime.now(timezone.utc)
    for number, days in ((rows, 60), (rows // 2, 13)):
        closed_instances(number, ended_at=now - timedelta(days=days), steps=STEPS, children=number // 10, messages=1)
    if connection.vendor != "mysql":
        with connection.cursor() as cursor:
            cursor.execute("ANALYZE")
    gc.collect()
    gc.freeze()  # looking through all that was imported takes 0.2 s, and would count as a statement's
    with timed() as statements:
        began = time.monotonic()
        report = purge(seconds=patience)
        seconds = time.monotonic() - began
    statements.sort(reverse=True)
    left = WorkflowInstance.objects.count(), StepResult.objects.count()
    gone = report.instances if report.more else rows
    # Of a tree that is half gone the steps of the next instances may be gone before those.
    right = (report.instances, left[0]) == (gone, rows + rows // 2 - gone) and (
        report.more or left[1] == rows // 2 * STEPS
    )
    print(f"{database}: {report.instances:,} of {rows:,} instances in {report.trees:,} trees, {report.steps:,} steps")
    print(f"{seconds:.1f} s, {report.instances / seconds:,.0f} instances a second, {len(statements):,} statements")
    middle, slow = statements[len(statements) // 2][0], sum(took > LONGEST for took, _ in statements)
    print(f"median {middle * 1000:.1f} ms, {slow} took longer than {LONGEST * 1000:.0f} ms")
    for took, sql in statements[:3]:
        print(f"{took * 1000:7.1f} ms  {sql[:100]}")
    longest = statements[0][0]
    print(f"purge: longest statement {longest * 1000:.0f} ms, {'all' if right else 'NOT all'} as it should be")
    return 0 if right and longest <= LONGEST else 1


@contextmanager
def timed() -> Iterator[list[tuple[float, str]]]:
    """Seconds and text of each statement sent inside."""
    from django.db import connection

    found: list[tuple[float, str]] = []

    def wrapper(execute: Callable[..., Any], sql: str, params: Any, many: bool, context: Any) -> Any:
        began = time.monotonic()
        try:
            return execute(sql, params, many, context)
        finally:
            found.append((time.monotonic() - began, sql))

    with connection.execute_wrapper(wrapper):
        yield found


if __name__ == "__main__":
    sys.exit(main())
