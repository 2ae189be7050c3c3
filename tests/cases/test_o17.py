"""O-17: only executions count as attempts.

A step that is turned away ten times before it may run, by locks, by another holder or by a worker that is going away,
has used up nothing of a budget of two.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import contextmanager
from typing import Any

import pytest
from django.db import OperationalError, connection

from django_app.models import StepResult
from django_app.store import retries
from durable_celery import Workflow, current_step, runtime, step, workflow
from tests.pump import Pump

REFUSALS = 10
ran: list[int] = []
meanwhile: list[Callable[[], None]] = []


@step(retry=2)
def five() -> int:
    ran.append(current_step().attempt)
    for act in meanwhile:
        act()
    return 5


@workflow
def counting() -> Workflow[int]:
    return (yield from five())


@pytest.fixture(autouse=True)
def _clean() -> None:
    ran.clear()
    meanwhile.clear()


def one_step_row(handle: Any) -> StepResult:
    row: StepResult = StepResult.objects.get(instance_id=handle.id)
    return row


def assert_ran_once_at_its_first_attempt(handle: Any) -> None:
    assert handle.result(timeout=0) == 5
    assert ran == [1]
    row = one_step_row(handle)
    assert (row.attempt, row.failures, row.deaths, row.expiries) == (1, 0, 0, 0)
    assert handle.history()[0].attempts == 1


@contextmanager
def locked(times: int) -> Any:
    """The database says that it is locked to this many claims."""
    left = [times]

    def refuse(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        claims = sql.startswith("UPDATE") and "started_at" in sql and "durable_celery_stepresult" in sql
        if claims and left[0]:
            left[0] -= 1
            raise OperationalError(*LOCKED[connection.vendor])
        return execute(sql, params, many, context)

    with connection.execute_wrapper(refuse):
        yield left


LOCKED: dict[str, tuple[Any, ...]] = {
    "sqlite": ("database is locked",),
    "mysql": (1205, "Lock wait timeout exceeded; try restarting transaction"),
    "postgresql": ("canceling statement due to lock timeout: database is locked",),
}


def test_o17_locks_in_the_way_of_a_claim_count_for_nothing(pump: Pump, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retries, "FIRST_PAUSE", 0.001)
    monkeypatch.setattr(retries, "LONGEST_PAUSE", 0.001)
    with locked(REFUSALS) as left:
        handle = counting.start()
        pump.finish()
    assert left == [0]
    assert_ran_once_at_its_first_attempt(handle)


def test_o17_a_database_that_stays_locked_costs_messages_and_no_attempt(
    pump: Pump, monkeypatch: pytest.MonkeyPatch
) -> None:
    pump.contained = (OperationalError,)
    claim = runtime.current().store.claim
    refused: list[int] = []

    def refusing(step_id: int, **options: Any) -> Any:
        if len(refused) < REFUSALS:
            refused.append(step_id)
            raise OperationalError("database is locked")
        return claim(step_id, **options)

    monkeypatch.setattr(runtime.current().store, "claim", refusing)
    handle = counting.start()
    pump.drain()
    for _ in range(REFUSALS):
        pump.advance_time(minutes=6)
    assert len(refused) == REFUSALS
    assert_ran_once_at_its_first_attempt(handle)


def test_o17_a_step_that_another_holds_is_refused_and_uses_up_nothing(pump: Pump) -> None:
    pump.fate = lambda hint: (0.0,) * (REFUSALS + 1) if hint.step is not None else (0.0,)
    meanwhile.append(pump.drain)
    handle = counting.start()
    pump.finish()
    assert [ended.kind for ended in pump.ended] == ["refused"] * REFUSALS + ["succeeded"]
    assert_ran_once_at_its_first_attempt(handle)


def test_o17_a_worker_that_is_going_away_gives_the_step_back_unused(pump: Pump) -> None:
    handle = counting.start()
    pump.fate = lambda hint: ()
    pump.drain()
    pump.fate = lambda hint: (0.0,)
    (hint,) = [hint for hint in pump.sent if hint.step is not None]
    assert pump.lease is not None
    runtime.current().store.bury_lease(pump.lease.id, pump.now)
    for _ in range(REFUSALS):
        ended = pump.deliver(hint)
        assert ended is not None
        assert ended.kind == "refused"
    assert one_step_row(handle).attempt == 0
    assert one_step_row(handle).state == "SCHEDULED"
    pump.finish()
    assert_ran_once_at_its_first_attempt(handle)
