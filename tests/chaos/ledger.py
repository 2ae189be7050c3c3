"""What bodies did to the outside world: one line each, in one file, whatever becomes of the process or the database.

A line is written by one call to a file opened for appending, so that a kill leaves it whole or leaves none.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

VARIABLE = "TEST_CHAOS"  # the folder of a run


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A body ran: for which run, what it did, under which idempotency key, at which attempt (0: not known)."""

    run: str
    what: str
    key: str
    attempt: int = 0
    at: float = 0.0


def folder() -> Path:
    return Path(os.environ[VARIABLE])


def write(run: str, what: str, key: str, attempt: int) -> None:
    append(folder() / "ledger", asdict(Line(run=run, what=what, key=key, attempt=attempt, at=time.time())))


def append(path: Path, value: dict[str, Any]) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(descriptor, (json.dumps(value) + "\n").encode())
    finally:
        os.close(descriptor)


def read(path: Path) -> Iterator[dict[str, Any]]:
    if path.exists():
        for line in path.read_text().splitlines():
            yield json.loads(line)


def lines(path: Path) -> list[Line]:
    return [Line(**value) for value in read(path)]
