"""A clock of this process that is wrong, or is set while it runs: the database's is the judge."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from durable_celery import faults, runtime
from durable_celery.celery import seat as seats
from durable_celery.celery import tasks
from durable_celery.runtime import Clock


class Database:
    """Its clock is right; that of this machine may be ahead of it."""

    def __init__(self, ahead: timedelta = timedelta(0)) -> None:
        self.readings = 0
        self.ahead = ahead

    def measure(self) -> datetime:
        self.readings += 1
        return datetime.now(timezone.utc) - self.ahead


def wrong_by(clock: Clock) -> float:
    """Minutes, whatever the machine is busy with."""
    return round((clock.now() - datetime.now(timezone.utc)) / timedelta(minutes=1), 1)


@pytest.mark.parametrize("wrong", ["-10m", "-30s", "30s", "10m"])
def test_a_clock_that_is_wrong_from_the_start_is_corrected(wrong: str) -> None:
    clock = Clock(Database())  # type: ignore[arg-type]
    with faults.injected(f"clock={wrong}"):
        assert wrong_by(clock) == 0


@pytest.mark.parametrize("jump", ["-10m", "-30s", "30s", "10m"])
def test_a_clock_that_is_set_meanwhile_is_corrected_at_once(jump: str) -> None:
    database = Database()
    clock = Clock(database)  # type: ignore[arg-type]
    with faults.injected(f"app.set:clock={jump}"):
        assert (wrong_by(clock), database.readings) == (0, 1)
        faults.reach("app.set")
        assert (wrong_by(clock), database.readings) == (0, 2)
        assert abs(clock.local() - datetime.now(timezone.utc)) > timedelta(seconds=20)


def test_a_clock_that_nobody_sets_is_read_once() -> None:
    database = Database()
    clock = Clock(database)  # type: ignore[arg-type]
    assert len({clock.now() for _ in range(100)}) > 1
    assert database.readings == 1


def test_a_worker_whose_clock_is_ahead_does_not_seem_behind_its_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []

    class Seat:
        def note_wait(self, seconds: float) -> None:
            waits.append(seconds)

    monkeypatch.setattr(seats, "taken", Seat)
    database = Database(ahead=timedelta(minutes=30))
    clock: Any = Clock(database)  # type: ignore[arg-type]
    monkeypatch.setattr(runtime.current(), "clock", clock)
    sent = clock.now().timestamp()
    tasks._note_wait({"sent": sent})
    assert 0 <= waits[0] < 1000
