"""The database goes away while a body runs: what it did is stored when the database is back."""

from __future__ import annotations

from contextlib import AbstractContextManager
from datetime import timedelta
from typing import Any

import pytest
from django.db import DataError, InterfaceError, OperationalError, connection

from django_app.models import StepAttempt, StepResult
from durable_celery import RetryPolicy, Workflow, current_step, faults, sleep, step, workflow
from durable_celery.engine import attempts
from tests.pump import Pump

ran: list[int] = []
ONCE = RetryPolicy(maximum_attempts=1)


class Away:
    """For ``execute_wrapper``: the first ``times`` statements after the body find nobody."""

    def __init__(self, error: Exception, times: int) -> None:
        self.error = error
        self.left = times

    def __call__(self, execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        if ran and self.left:
            self.left -= 1
            raise self.error
        return execute(sql, params, many, context)


@step(name="outage.work", retry=ONCE)
def work(fails: bool) -> int:
    ran.append(current_step().attempt)
    if fails:
        raise RuntimeError("the body's own")
    return 7


@workflow(name="outage.run")
def once(fails: bool) -> Workflow[int]:
    return (yield from work(fails))


@workflow(name="outage.nap")
def napping() -> Workflow[None]:
    yield from sleep(timedelta(minutes=1))


@pytest.fixture(autouse=True)
def _nothing_ran(monkeypatch: pytest.MonkeyPatch) -> None:
    ran.clear()
    monkeypatch.setattr("time.sleep", lambda seconds: None)


def away(error: Exception, times: int) -> AbstractContextManager[None]:
    return connection.execute_wrapper(Away(error, times))


@pytest.mark.parametrize("error", [
    OperationalError("server closed the connection unexpectedly"),
    InterfaceError("connection already closed"),
    OperationalError(2006, "Server has gone away"),
])  # fmt: skip
def test_a_result_outlives_an_outage_and_no_attempt_is_counted(pump: Pump, error: Exception) -> None:
    handle = once.start(False)
    with away(error, 20):
        pump.drain()
    pump.finish()
    assert (handle.result(timeout=0), ran) == (7, [1])
    assert StepAttempt.objects.count() == 0


def test_an_error_of_the_body_outlives_an_outage_as_it_was(pump: Pump) -> None:
    handle = once.start(True)
    with away(OperationalError("the database system is shutting down"), 20):
        pump.drain()
    pump.finish()
    assert (handle.status, ran) == ("FAILED", [1])
    (entry,) = handle.history()
    assert entry.error is not None
    assert entry.error.message == "the body's own"
    assert StepAttempt.objects.get().outcome == "failed"


def test_an_outage_without_end_is_an_error_of_the_message_and_the_row_is_judged_by_its_time(
    pump: Pump, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attempts, "OUTAGE", 0.0)
    handle = once.start(False)
    with away(OperationalError("gone"), 10**6), pytest.raises(OperationalError, match="gone"):
        pump.drain()
    assert StepResult.objects.get().state == "RUNNING"
    pump.finish()
    assert handle.status == "FAILED"
    assert StepAttempt.objects.get().outcome == "timed out"


def test_what_the_database_refuses_is_not_tried_again(pump: Pump) -> None:
    once.start(False)
    with away(DataError("value too long"), 1), pytest.raises(DataError):
        pump.drain()


@pytest.mark.server
def test_a_connection_that_breaks_in_a_tick_costs_it_one_row(pump: Pump) -> None:
    handles = [napping.start() for _ in range(5)]
    pump.drain()
    pump.now += timedelta(minutes=2)
    with faults.injected("tick.before_act:cut"):
        report = pump.tick()
    assert report.errors == 1
    pump.drain()
    assert sorted(handle.status for handle in handles) == ["COMPLETED"] * 4 + ["WAITING"]
    pump.finish()
    assert {handle.status for handle in handles} == {"COMPLETED"}


def test_a_tick_ends_when_the_database_is_gone(pump: Pump, monkeypatch: pytest.MonkeyPatch) -> None:
    """And does not fail at each row that it had read."""
    handles = [napping.start() for _ in range(5)]
    pump.drain()
    pump.now += timedelta(minutes=2)
    acted: list[str] = []

    def stop(point: str) -> None:
        if point == "tick.before_act":
            acted.append(point)
            connection.close()
            monkeypatch.setattr(connection, "get_new_connection", refuse)

    faults.set_hook(stop)
    with pytest.raises(OperationalError, match="refused"):
        pump.tick()
    assert len(acted) == 1
    faults.set_hook(None)
    monkeypatch.undo()
    pump.finish()
    assert {handle.status for handle in handles} == {"COMPLETED"}


def refuse(parameters: Any) -> Any:
    raise OperationalError("connection refused")


class LosesTheClaim:
    """For ``execute_wrapper``: the connection breaks once around the statement that claims, or at the one behind it."""

    def __init__(self, where: str) -> None:
        self.where = where
        self.claimed = self.broken = False

    def __call__(self, execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        claims = sql.startswith("UPDATE") and "RUNNING" in str(params) and "attempt" in sql
        if self.broken or not (claims or self.claimed):
            return execute(sql, params, many, context)
        self.claimed = True
        if claims and self.where == "read back":
            return execute(sql, params, many, context)
        self.broken = True
        if self.where == "answer":
            execute(sql, params, many, context)
        raise OperationalError("server closed the connection unexpectedly")


@pytest.mark.parametrize("where", ["answer", "read back"])
def test_a_connection_that_breaks_at_the_claim_costs_no_attempt_and_no_time(pump: Pump, where: str) -> None:
    """Else the claim of a process that lives, and runs nothing, stands until the attempt's time is up."""
    handle = once.start(False)
    breaks = LosesTheClaim(where)
    with connection.execute_wrapper(breaks):
        pump.drain()
    assert breaks.broken
    assert (handle.status, ran) == ("COMPLETED", [1])
    assert StepAttempt.objects.count() == 0


def test_a_claim_that_never_came_is_none(pump: Pump) -> None:
    handle = once.start(False)
    with connection.execute_wrapper(LosesTheClaim("statement")):
        pump.drain()
    assert (StepResult.objects.get().state, ran) == ("SCHEDULED", [])
    pump.finish()
    assert (handle.status, ran) == ("COMPLETED", [1])


@pytest.mark.django_db(transaction=True)
def test_a_connection_cut_right_before_the_end_is_stored_costs_no_second_attempt(pump: Pump) -> None:
    handle = once.start(False)
    with faults.injected("record.before:cut") as injection:
        pump.finish()
    assert injection.struck == {"record.before:cut": 1}
    assert handle.result(timeout=0) == 7
    assert ran == [1]
    assert handle.history()[0].attempts == 1
