"""Steps that misbehave, for the workers of ``test_prefork``. Each execution appends a line to a file, to be counted."""

from __future__ import annotations

import os
import re
import signal
import time
from pathlib import Path

from durable_celery import RetryPolicy, Workflow, current_step, step, workflow

AGAIN = RetryPolicy(maximum_attempts=2, initial_interval=0.05, maximum_interval=0.05, jitter=False)


def note(path: str) -> int:
    """Append a line; returns the number of the attempt."""
    with Path(path).open("a") as file:
        file.write(f"{time.time()} {os.getpid()}\n")
        file.flush()
        os.fsync(file.fileno())
    return current_step().attempt


@step(name="tests.prefork.loops", start_to_close_timeout=0.5, retry=AGAIN)
def loops(path: str) -> str:
    if note(path) == 1:
        while True:
            pass
    return "done"


@step(name="tests.prefork.swallows", start_to_close_timeout=0.5, retry=AGAIN)
def swallows(path: str) -> str:
    """Cannot be stopped but by a kill."""
    if note(path) == 1:
        while True:
            try:
                time.sleep(0.01)
            except Exception:
                continue
    return "done"


@step(name="tests.prefork.queries", start_to_close_timeout=0.5, retry=AGAIN)
def queries(path: str) -> str:
    """Is stopped in the middle of a query; its connection is of no use then."""
    from django.db import connection

    if note(path) == 1:
        with connection.cursor() as cursor:
            if connection.vendor == "postgresql":
                cursor.execute("SELECT pg_sleep(30)")
            elif connection.vendor == "mysql":
                cursor.execute("SELECT sleep(30)")
            else:
                cursor.execute("WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT max(i) FROM n")
    return "done"


@step(name="tests.prefork.lingers")
def lingers(path: str, seconds: float) -> str:
    if note(path) == 1:
        time.sleep(seconds)
    return "done"


@step(name="tests.prefork.quick")
def quick(path: str) -> int:
    note(path)
    return os.getpid()


@workflow(name="tests.prefork.one")
def one(name: str, path: str) -> Workflow[str]:
    return (yield from {"loops": loops, "swallows": swallows, "queries": queries}[name](path))


@workflow(name="tests.prefork.lingering")
def lingering(path: str, seconds: float) -> Workflow[str]:
    return (yield from lingers(path, seconds))


@workflow(name="tests.prefork.several")
def several(path: str, count: int) -> Workflow[list[int]]:
    pids = []
    for _ in range(count):
        pids.append((yield from quick(path)))
    return pids


@workflow(name="tests.prefork.never_ending")
def never_ending(how: str, path: str) -> Workflow[None]:
    """A turn that never ends, in Python or in C."""
    yield from quick(path)
    if how == "python":
        while True:
            try:
                time.sleep(0.001)
            except BaseException:
                continue
    re.match(r"(a|aa)+$", "a" * 60 + "b")


@step(name="tests.prefork.eats")
def eats(path: str, megabytes: int) -> int:
    note(path)
    return len(bytearray(megabytes * 1024 * 1024)) // 1024 // 1024


@workflow(name="tests.prefork.eating")
def eating(path: str, times: int, megabytes: int) -> Workflow[list[int]]:
    eaten = []
    for _ in range(times):
        eaten.append((yield from eats(path, megabytes)))
    return eaten


@step(name="tests.prefork.deadly_step")
def deadly_step(path: str) -> None:
    note(path)
    os.kill(os.getpid(), signal.SIGKILL)


@workflow(name="tests.prefork.dying_in_a_step")
def dying_in_a_step(path: str) -> Workflow[None]:
    yield from deadly_step(path)


@workflow(name="tests.prefork.dying_in_a_turn")
def dying_in_a_turn(how: str, path: str) -> Workflow[None]:
    """Each of its second turns notes that it was taken, and ends its process."""
    yield from quick(path)
    with Path(f"{path}.turns").open("a") as file:
        file.write(f"{os.getpid()}\n")
    if how == "exit":
        os._exit(0)
    os.kill(os.getpid(), signal.SIGSEGV if how == "crash" else signal.SIGKILL)
