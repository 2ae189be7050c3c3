"""`handle.query`: the state after the last turn, whatever became of the instance; nothing is changed by it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from uuid import UUID

import pytest
from asgiref.sync import async_to_sync

from django_app.models import WorkflowInstance
from durable_celery import (
    CancelRequested,
    InstanceNotFound,
    NonDeterminism,
    Signal,
    UsageError,
    Workflow,
    WorkflowBlocked,
    WorkflowFailed,
    WorkflowNotFound,
    get_handle,
    query,
    register_context,
    step,
    workflow,
)
from durable_celery.handle import WorkflowHandle
from tests.pump import Pump, counted, release

go = Signal("go")
tenant: ContextVar[str | None] = ContextVar("tenant")


@dataclass
class Order:
    lines: list[str]


@step
def work(number: int) -> int:
    return number


@workflow
def asked(ends: str) -> Workflow[str]:
    state = {"status": "new"}
    order = Order(lines=[])
    query("status", lambda: state["status"])
    query("order", lambda: order)
    query("add", lambda mine: mine.append("changed") or mine)
    query("tenant", lambda: tenant.get("none"))
    query("spoils", lambda: state.update(status="spoilt"))
    query("database", lambda: WorkflowInstance.objects.count())
    query("raises", lambda: 1 / 0)
    go.on(order.lines.append)
    yield from work(1)
    state["status"] = "worked"
    try:
        yield from Signal("end").wait(warn_after=3600)
    except CancelRequested:
        state["status"] = "cancelled"
        raise
    state["status"] = ends
    if ends == "FAILED":
        raise WorkflowFailed("as asked")
    return ends


def test_a_query_answers_before_the_start_while_it_waits_and_after_the_end(pump: Pump) -> None:
    handle = asked.start("COMPLETED")
    assert handle.query("status") == "new"
    pump.drain()
    assert (handle.status, handle.query("status")) == ("WAITING", "worked")
    handle.signal("end")
    assert handle.query("status") == "worked"
    pump.drain()
    assert (handle.status, handle.query("status")) == ("COMPLETED", "COMPLETED")


def test_a_query_answers_of_failed_cancelled_and_terminated_instances(pump: Pump) -> None:
    failed, cancelled, terminated, never = (asked.start("FAILED") for _ in range(4))
    never.cancel()
    pump.drain()
    failed.signal("end")
    cancelled.cancel()
    terminated.terminate()
    pump.drain()
    seen = [(each.status, each.query("status")) for each in (failed, cancelled, terminated, never)]
    assert seen == [("FAILED", "FAILED"), ("CANCELLED", "cancelled"), ("TERMINATED", "worked"), ("CANCELLED", "new")]


def test_a_query_changes_nothing_and_writes_nothing(pump: Pump) -> None:
    handle = asked.start("COMPLETED")
    pump.drain()
    before = WorkflowInstance.objects.values().get()
    with counted() as sent:
        assert handle.query("spoils") is None
    assert {statement.split()[0] for statement in sent} == {"SELECT"}
    assert handle.query("status") == "worked"
    assert WorkflowInstance.objects.values().get() == before
    assert pump.queue == []


def test_arguments_and_answers_are_copies(pump: Pump) -> None:
    handle = asked.start("COMPLETED")
    pump.drain()
    mine = ["a"]
    assert handle.query("add", mine) == ["a", "changed"]
    assert mine == ["a"]
    handle.signal("go", "line")
    pump.drain()
    assert handle.query("order") == Order(lines=["line"])


def test_a_query_is_refused_where_it_asks_the_database_and_raises_what_its_function_does(pump: Pump) -> None:
    handle = asked.start("COMPLETED")
    pump.drain()
    with pytest.raises(UsageError, match="a database query in a workflow body is refused"):
        handle.query("database")
    with pytest.raises(ZeroDivisionError):
        handle.query("raises")
    with pytest.raises(UsageError, match=r"no query 'nope'; known are 'add', 'database', 'order', 'raises'"):
        handle.query("nope")
    with pytest.raises(TypeError, match="argument"):
        handle.query("status", 1)


def test_a_query_runs_in_the_context_of_its_instance(pump: Pump) -> None:
    @contextmanager
    def put(value: str) -> Iterator[None]:
        token = tenant.set(value)
        yield
        tenant.reset(token)

    register_context("queried_tenant", capture=lambda: tenant.get(None), restore=put)
    token = tenant.set("acme")
    try:
        handle = asked.start("COMPLETED")
    finally:
        tenant.reset(token)
    pump.drain()
    assert handle.query("tenant") == "acme"


def test_a_blocked_instance_answers_no_query(pump: Pump) -> None:
    handle = asked.start("COMPLETED")
    pump.drain()
    WorkflowInstance.objects.update(state="BLOCKED", waiting_for="blocked: ValueError: a bug")
    with pytest.raises(WorkflowBlocked, match="cannot answer query 'status': it is blocked: ValueError: a bug"):
        handle.query("status")


def test_a_query_needs_code_that_fits(pump: Pump) -> None:
    def first() -> Workflow[None]:
        query("q", lambda: 1)
        yield from work(1)
        yield from go.wait(warn_after=3600)

    def second() -> Workflow[None]:
        query("q", lambda: 2)
        yield from go.wait(warn_after=3600)

    handle = release("queries.changed", first).start()
    pump.drain()
    assert handle.query("q") == 1
    release("queries.changed", second)
    with pytest.raises(NonDeterminism, match="recorded is step"):
        handle.query("q")
    WorkflowInstance.objects.update(version=7)
    with pytest.raises(WorkflowNotFound):
        handle.query("q")


def test_a_query_of_nothing_says_so(pump: Pump) -> None:
    with pytest.raises(InstanceNotFound):
        WorkflowHandle(str(UUID(int=7))).query("status")


def test_the_async_twin_answers_the_same(pump: Pump) -> None:
    handle = get_handle(asked.start("COMPLETED").id)
    pump.drain()
    assert async_to_sync(handle.aquery)("status") == "worked"
