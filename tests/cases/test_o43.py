"""Under REPEATABLE READ a process that polls in an open transaction never sees the change it waits for.

Waiting inside `atomic()` is refused; outside, each look is a transaction of its own, and so is each read by which the
engine decides, unless it locks what it reads.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any
from uuid import UUID

import pytest
from django.db import connection, connections, transaction
from django.test.utils import CaptureQueriesContext

from durable_celery import Signal, UsageError, Workflow, WorkflowHandle, faults, gather, runtime, step, workflow
from tests.pump import Pump

pytestmark = pytest.mark.django_db(transaction=True)

go_on = Signal("go_on", int)
LEVELS = {
    "postgresql": "SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL {}",
    "mysql": "SET SESSION TRANSACTION ISOLATION LEVEL {}",
}


@step(name="o43.member")
def member(number: int) -> int:
    return number


@workflow(name="o43.waiting")
def waiting() -> Workflow[int]:
    return (yield from go_on.wait())


@workflow(name="o43.ending")
def ending() -> Workflow[list[int]]:
    yield from member(0)
    got = []
    while (number := (yield from go_on.wait(timeout=0, default=-1))) != -1:
        got.append(number)
    return got


@workflow(name="o43.joining")
def joining() -> Workflow[list[int]]:
    return list((yield from gather(member(1), member(2))))


@pytest.fixture(params=["READ COMMITTED", pytest.param("REPEATABLE READ", marks=pytest.mark.server)])
def isolation(request: pytest.FixtureRequest) -> Iterator[str]:
    if connection.vendor not in LEVELS:
        yield request.param  # SQLite has one level
        return
    with connection.cursor() as cursor:
        cursor.execute(LEVELS[connection.vendor].format(request.param))
    yield request.param
    connection.close()


def elsewhere(call: Callable[[], Any]) -> None:
    """Done and committed over another connection."""
    errors: list[BaseException] = []

    def run() -> None:
        try:
            call()
        except BaseException as error:  # noqa: BLE001 - handed to the test
            errors.append(error)
        finally:
            connections.close_all()

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(30)
    assert not thread.is_alive()
    assert errors == []


# -- result() ----------------------------------------------------------------------------------------------------------


def test_o43_result_inside_a_transaction_is_refused_at_once(pump: Pump) -> None:
    with transaction.atomic():
        handle = waiting.start()
        began = time.monotonic()
        with (
            CaptureQueriesContext(connection) as asked,
            pytest.raises(UsageError, match=rf"result\(\) of instance {handle.id} inside atomic\(\)"),
        ):
            handle.result(timeout=5)
        assert time.monotonic() - began < 4
        assert len(asked) == 0
        with pytest.raises(UsageError), transaction.atomic():
            handle.result()
    assert handle.status == "PENDING"


def test_o43_the_refusal_is_documented() -> None:
    assert "Refused inside ``atomic()``" in (WorkflowHandle.result.__doc__ or "")


def test_o43_outside_it_sees_what_others_commit_while_it_waits(
    pump: Pump, isolation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    handle = waiting.start()
    pump.drain()
    looks: list[bool] = []
    find = runtime.current().store.find

    def finding(instance_id: Any) -> Any:
        looks.append(connection.get_autocommit() and not connection.in_atomic_block)
        found = find(instance_id)
        if len(looks) == 2:
            elsewhere(lambda: handle.signal("go_on", 7))
            elsewhere(pump.drain)
        return found

    monkeypatch.setattr(runtime.current().store, "find", finding)
    assert handle.result(timeout=20) == 7
    assert len(looks) > 2
    assert all(looks), "a look was no transaction of its own"


# -- what the engine decides by ----------------------------------------------------------------------------------------


def test_o43_whether_there_is_news_is_asked_in_a_snapshot_of_its_own(pump: Pump, isolation: str) -> None:
    handle = waiting.start()
    pump.drain()
    store, instance_id = runtime.current().store, UUID(handle.id)
    assert not store.has_news(instance_id)
    elsewhere(lambda: handle.signal("go_on", 1))
    assert store.has_news(instance_id)
    assert not connection.in_atomic_block


@pytest.mark.parametrize("point", ["turn.before_body", "turn.before_commit"])
def test_o43_a_signal_that_comes_while_a_turn_ends_the_instance_is_not_lost(
    pump: Pump, isolation: str, point: str
) -> None:
    handle = ending.start()
    pump.deliver(pump.queue[0])
    left = [1]

    def come_between(name: str) -> None:
        if name == point and left:
            left.clear()
            elsewhere(lambda: handle.signal("go_on", 42))

    faults.set_hook(come_between)
    pump.finish()
    assert left == []
    assert handle.result(timeout=0) == [42]


def test_o43_the_end_of_two_members_at_one_moment_is_joined(pump: Pump, isolation: str) -> None:
    """Each commits its result before it asks whether the other is still running; asked before, neither would join."""
    handle = joining.start()
    pump.deliver(pump.queue[0])
    first, second = list(pump.queue)
    left = [1]

    def come_between(name: str) -> None:
        if name == "record.before" and left:
            left.clear()
            elsewhere(lambda: pump.deliver(second))

    faults.set_hook(come_between)
    pump.deliver(first)
    faults.set_hook(None)
    assert left == []
    assert handle.status == "COMPLETED"
    assert handle.result(timeout=0) == [1, 2]


def test_o43_what_closes_an_instance_looks_for_messages_behind_the_lock(pump: Pump) -> None:
    handle = ending.start()
    pump.deliver(pump.queue[0])
    with CaptureQueriesContext(connection) as captured:
        pump.finish()
    assert handle.status == "COMPLETED"
    sent = [query["sql"] for query in captured.captured_queries]
    begins = [i for i, sql in enumerate(sent) if sql.upper().startswith("BEGIN")]
    last = sent[begins[-1] :] if begins else sent
    looked = [i for i, sql in enumerate(last) if sql.startswith("SELECT") and "durable_celery_message" in sql]
    assert looked
    if connection.features.has_select_for_update:
        locked = [i for i, sql in enumerate(last) if "FOR UPDATE" in sql and "durable_celery_mailbox" in sql]
        assert locked
        assert locked[0] < looked[0]
