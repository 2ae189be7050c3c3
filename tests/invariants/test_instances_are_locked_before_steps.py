"""Instances are locked before steps, and each transaction of the engine begins with a write or with a lock."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection, transaction

from django_app.store.connected import Connected
from durable_celery import Signal, Workflow, gather, purging, step, workflow
from durable_celery.core import transitions
from durable_celery.handle import WorkflowHandle
from durable_celery.testing import Harness
from tests.pump import Pump
from tests.testing.every_feature import every_feature, outside

pytestmark = pytest.mark.django_db(transaction=True)

go = Signal("order.go")
TABLE = re.compile(r"""\b(?:UPDATE|INTO|FROM) [`"](\w+)[`"]""")
LOCKS = ("INSERT", "UPDATE", "DELETE", "REPLACE")
LOCKED_READS = re.compile(r" FOR (NO KEY )?UPDATE| FOR SHARE| LOCK IN SHARE MODE")


@dataclass
class Transactions:
    """Of each transaction of the store what it locks, in order: (verb, table, whether rows that others may hold)."""

    seen: list[list[tuple[str, str, bool]]] = field(default_factory=list)
    fresh: list[str] = field(default_factory=list)  # first statements that lock nothing

    def __call__(self, execute: Callable[..., Any], sql: str, params: Any, many: bool, context: Any) -> Any:
        if connection.in_atomic_block and self.seen and not sql.startswith(("SAVEPOINT", "RELEASE", "ROLLBACK")):
            locks = sql.startswith(LOCKS) or LOCKED_READS.search(sql) is not None
            if not self.seen[-1] and not locks:
                self.fresh.append(sql)
            found = TABLE.search(sql)
            if locks and found:
                self.seen[-1].append((sql.split()[0], found[1].removeprefix("durable_celery_"), sql[:6] != "INSERT"))
        return execute(sql, params, many, context)

    def against_order(self) -> list[list[str]]:
        """Where a step that others may hold was locked before the first instance that others may hold."""
        found = []
        for statements in self.seen:
            tables = [table for _, table, held in statements if held and table in ("workflowinstance", "stepresult")]
            if tables[:1] == ["stepresult"] and "workflowinstance" in tables:
                found.append([table for _, table, _ in statements])
        return found


@pytest.fixture
def transactions(monkeypatch: pytest.MonkeyPatch) -> Iterator[Transactions]:
    noted = Transactions()

    @contextmanager
    def atomic(store: Connected) -> Iterator[None]:
        if not connection.in_atomic_block:
            noted.seen.append([])
        with transaction.atomic():
            yield

    monkeypatch.setattr(Connected, "atomic", atomic)
    with connection.execute_wrapper(noted):
        yield noted


def test_by_a_workflow_that_uses_every_feature(durable: Harness, transactions: Transactions) -> None:
    run, act = durable.start(every_feature), outside(durable)
    while run.status not in transitions.FINAL_STATES:
        act(run)
        durable.advance_time(seconds=10)
    assert len(transactions.seen) > 60
    assert transactions.against_order() == []
    # An atomic step on a server looks whether it is still wanted, and holds its own row from its last statement on.
    of_atomic_steps = [sql for sql in transactions.fresh if "stepresult" in sql and "token" in sql]
    assert transactions.fresh == ([] if connection.vendor == "sqlite" else of_atomic_steps)


@step(name="order.work", retry=None)
def work(number: int) -> int:
    if number < 0:
        raise ValueError(number)
    return number


@step(name="order.undo")
def undo(result: int | None) -> None:
    """Gives back what was taken."""


@workflow(name="order.inner")
def inner(number: int) -> Workflow[None]:
    yield from work(number)
    yield from go.wait()


@workflow(name="order.outer", key=lambda number: f"order-{number}")
def outer(number: int) -> Workflow[None]:
    yield from work(1).compensate_with(undo)
    yield from gather(work(2), work(3), limit=1)
    yield from inner(number)


@workflow(name="order.plain")
def plain(number: int) -> Workflow[None]:
    yield from inner(number)


def cancel(handle: WorkflowHandle[Any]) -> None:
    handle.cancel("enough")


def terminate(handle: WorkflowHandle[Any]) -> None:
    handle.terminate("enough")


def pause(handle: WorkflowHandle[Any]) -> None:
    handle.pause("later")
    handle.resume()
    go.send(handle, None)


def replace(handle: WorkflowHandle[Any]) -> None:
    outer.using(conflict="terminate_existing").start(1)


ACTS: Mapping[str, Callable[[WorkflowHandle[Any]], None]] = {
    "cancel": cancel, "terminate": terminate, "pause and resume": pause, "start in its place": replace,
}  # fmt: skip


@pytest.mark.parametrize("act", ACTS.values(), ids=ACTS)
def test_by_what_people_do(pump: Pump, transactions: Transactions, act: Callable[..., None]) -> None:
    handle = outer.start(1)
    pump.drain()
    act(handle)
    pump.drain()
    assert transactions.against_order() == []
    assert transactions.fresh == []


def test_by_the_retry_of_a_parent_and_its_child(pump: Pump, transactions: Transactions) -> None:
    handle = plain.start(-2)
    pump.drain()
    assert handle.status == "FAILED"
    handle.retry()
    pump.drain()
    assert handle.status == "FAILED"
    assert transactions.against_order() == []
    assert transactions.fresh == []


def test_by_a_purge(pump: Pump, transactions: Transactions) -> None:
    outer.start(-2)
    pump.drain()
    pump.now += timedelta(days=1)
    assert purging.purge(older_than=timedelta(hours=1)).instances == 2
    assert transactions.against_order() == []
    assert transactions.fresh == []
