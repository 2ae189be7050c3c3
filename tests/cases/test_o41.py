"""One read outside the retry loop met "database is locked", and a workflow was recorded as failed for good.

Locks, deadlocks and failed serialisations pass: the engine tries the same again at every statement of its own, no
attempt is burnt, and no step has such an error for its own.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from django.db import DatabaseError, OperationalError, connection, transaction

from django_app.models import StepAttempt, StepResult, WorkflowInstance
from django_app.store import retries
from django_app.store.connected import Connected
from durable_celery import Signal, Workflow, gather, sleep, step, workflow
from durable_celery.client import WorkflowHandle
from tests.pump import Pump
from tests.store.making import at_once

pytestmark = pytest.mark.django_db(transaction=True)

go = Signal("o41.go", int)
effects: Counter[tuple[int, str]] = Counter()
counting = threading.Lock()


@step(name="o41.work")
def work(number: int, what: str) -> str:
    with counting:
        effects[number, what] += 1
    return what


@workflow(name="o41.three", key=lambda number: f"three-{number}")
def three(number: int) -> Workflow[list[str]]:
    one = yield from work(number, "one")
    two = yield from work(number, "two")
    return [one, two, (yield from work(number, "three"))]


@workflow(name="o41.everything", key=lambda number: f"everything-{number}")
def everything(number: int) -> Workflow[list[str]]:
    """A step, members that run together, a sleep and a message: every kind of statement of the engine."""
    one = yield from work(number, "one")
    two, three = yield from gather(work(number, "two"), work(number, "three"), limit=1)
    yield from sleep(5)
    answer = yield from go.wait(timeout=60)
    return [one, two, three, str(answer)]


@pytest.fixture(autouse=True)
def _no_effects() -> None:
    effects.clear()


# -- at every statement --------------------------------------------------------------------------------------------


class Stumble:
    """For ``execute_wrapper``: the nth statement meets ``error``; only once, as a lock that passes does."""

    def __init__(self, nth: int, error: Callable[[], DatabaseError]) -> None:
        self.nth = nth
        self.error = error
        self.seen = 0
        self.hit = ""

    def __call__(self, execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        if not sql.startswith(("SAVEPOINT", "RELEASE", "ROLLBACK")):
            self.seen += 1
            if self.seen == self.nth:
                self.hit = sql
                raise self.error()
        return execute(sql, params, many, context)


def of_the_driver(sqlstate: str) -> DatabaseError:
    error = OperationalError("something was in the way")
    error.__cause__ = type("DriverError", (Exception,), {"sqlstate": sqlstate})()
    return error


LOCKS: dict[str, Callable[[], DatabaseError]] = {
    "database is locked": partial(OperationalError, "database is locked"),
    "deadlock on PostgreSQL": partial(of_the_driver, "40P01"),
    "failed serialisation on PostgreSQL": partial(of_the_driver, "40001"),
    "deadlock on MySQL": partial(OperationalError, 1213, "Deadlock found when trying to get lock"),
    "lock wait time-out on MySQL": partial(OperationalError, 1205, "Lock wait timeout exceeded"),
}


def run_everything(pump: Pump, number: int) -> WorkflowHandle[list[str]]:
    handle = everything.start(number)
    pump.drain()
    pump.now += timedelta(seconds=6)
    pump.tick()
    pump.drain()
    assert handle.status == "WAITING"
    go.send(handle, 7)
    pump.drain()
    return handle


@pytest.mark.parametrize("name", LOCKS)
def test_o41_a_lock_that_is_in_the_way_of_any_one_statement_is_no_failure(
    pump: Pump, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retries, "FIRST_PAUSE", 0.0001)
    if connection.vendor == "sqlite":
        connection.cursor().execute("PRAGMA synchronous = OFF")  # no power is cut here, and there are many commits
    run_everything(pump, -1)
    with connection.execute_wrapper(counter := Stumble(0, LOCKS[name])):
        run_everything(pump, 0)
    assert counter.seen > 60
    for nth in range(1 + list(LOCKS).index(name), counter.seen + 1, len(LOCKS)):  # each statement meets one of them
        pump.queue.clear()
        effects.clear()
        with connection.execute_wrapper(stumble := Stumble(nth, LOCKS[name])):
            handle = run_everything(pump, nth)
        assert stumble.hit
        assert handle.result(timeout=0) == ["one", "two", "three", "7"], stumble.hit
        assert set(effects.values()) == {1}, stumble.hit
        assert_no_attempt_was_burnt(stumble.hit)


def assert_no_attempt_was_burnt(what: str = "") -> None:
    steps = StepResult.objects.filter(kind="step")
    assert set(steps.values_list("state", "attempt", "failures", "deaths", "expiries")) == {
        ("SUCCEEDED", 1, 0, 0, 0)
    }, what
    assert StepAttempt.objects.count() == 0, what
    assert set(WorkflowInstance.objects.values_list("state", flat=True)) == {"COMPLETED"}, what


# -- beside somebody who holds the lock ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("workflows", "held", "free"),
    [(20, 0.2, 0.1), pytest.param(100, 2, 1, marks=[pytest.mark.nightly, pytest.mark.timeout(600)])],
)
def test_o41_workers_complete_all_beside_a_transaction_that_holds_the_lock(
    pump: Pump, workflows: int, held: float, free: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    if connection.vendor == "sqlite":
        # As a project has it that says nothing: a transaction takes its lock late, and waits for it not long.
        monkeypatch.setitem(connection.settings_dict, "OPTIONS", {"timeout": 0.05})
    handles = [three.start(number) for number in range(workflows)]
    stop, popping = threading.Event(), threading.Lock()
    deadline = time.monotonic() + 60 * max(1, held)

    def hold() -> None:
        while not stop.is_set():
            with transaction.atomic():
                if connection.vendor == "sqlite":
                    connection.cursor().execute("PRAGMA busy_timeout = 20000")
                WorkflowInstance.objects.update(status_text="held")
                stop.wait(held)
            stop.wait(free)

    def deliver() -> None:
        try:
            while True:
                assert time.monotonic() < deadline, "not all came to their end"
                with popping:
                    hint = pump.queue.pop(0) if pump.queue else None
                if hint is not None:
                    pump.deliver(hint)
                elif all(handle.status == "COMPLETED" for handle in handles):
                    return
                else:
                    stop.wait(0.05)
        except BaseException:
            stop.set()
            raise

    def deliver_all() -> list[Any]:
        try:
            return at_once(*[deliver] * 4)
        finally:
            stop.set()

    holding, delivered = at_once(hold, deliver_all)
    assert (holding, delivered) == (None, [None] * 4)
    assert [handle.result(timeout=0) for handle in handles] == [["one", "two", "three"]] * workflows
    assert (len(effects), set(effects.values())) == (3 * workflows, {1})
    assert_no_attempt_was_burnt()


def test_o41_every_transaction_of_the_engine_begins_with_a_write(pump: Pump, monkeypatch: pytest.MonkeyPatch) -> None:
    """On SQLite one that has read before it writes is refused at once, however long it would wait."""
    fresh, firsts = [False], []

    @contextmanager
    def atomic(store: Connected) -> Iterator[None]:
        fresh[0] = not connection.in_atomic_block
        with transaction.atomic():
            yield

    def noting(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        if fresh[0] and not sql.startswith("BEGIN"):
            fresh[0] = False
            firsts.append(sql)
        return execute(sql, params, many, context)

    monkeypatch.setattr(Connected, "atomic", atomic)
    with connection.execute_wrapper(noting):
        run_everything(pump, 1)
        three.using(conflict="terminate_existing").start(2)
        three.using(conflict="terminate_existing").start(2)
    assert len(firsts) > 10
    locking = ("INSERT", "UPDATE") if connection.vendor == "sqlite" else ("INSERT", "UPDATE", "SELECT")
    assert all(sql.startswith(locking) for sql in firsts), firsts
    reads = [sql for sql in firsts if sql.startswith("SELECT")]
    assert all(sql.endswith((" FOR SHARE", " LOCK IN SHARE MODE")) for sql in reads), reads
