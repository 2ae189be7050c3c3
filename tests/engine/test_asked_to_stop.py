"""What a running body learns by asking, without a heartbeat; and both from within a transaction or an event loop."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.db import OperationalError, connection, transaction

from django_app.models import StepResult
from durable_celery import Workflow, current_step, get_handle, runtime, shield, sleep, spawn, step, workflow
from durable_celery.testing import Harness
from tests.pump import Pump, counted

in_own_transactions = pytest.mark.django_db(transaction=True)
hooks: list[Callable[[], Any]] = []
seen: list[Any] = []


@pytest.fixture(autouse=True)
def clean() -> Iterator[None]:
    yield
    hooks.clear()
    seen.clear()


def look() -> None:
    """What the body is told before and after what the hook does."""
    asked = current_step()
    seen.append(asked.cancel_requested)
    hooks.pop()()
    seen.append(asked.cancel_requested)


def elsewhere(call: Callable[[], Any]) -> None:
    """In another thread, as another process would; it must not wait for the body."""

    def run() -> None:
        try:
            call()
        finally:
            connection.close()

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(20)
    assert not thread.is_alive()


def cancelled(pump: Pump, *, after: float = 1) -> Callable[[], None]:
    """Somebody else cancels the run, and time passes."""

    def cancel() -> None:
        instance_id = current_step().instance_id
        elsewhere(lambda: get_handle(instance_id).cancel())
        pump.now += timedelta(seconds=after)

    return cancel


@step(name="asked.plain", retry=None, start_to_close_timeout=30)
def plain() -> None:
    look()


@step(name="asked.in_a_loop", retry=None)
async def in_a_loop() -> None:
    look()


@step(name="asked.atomic", retry=None, atomic=True)
def atomic() -> None:
    StepResult.objects.count()
    look()


@step(name="asked.in_a_block", retry=None)
def in_a_block() -> None:
    with transaction.atomic():
        StepResult.objects.count()  # MySQL shows the rows of now from here on
        look()


@workflow(name="asked.runs")
def runs(which: str) -> Workflow[None]:
    yield from {"plain": plain, "in a loop": in_a_loop, "atomic": atomic, "in a block": in_a_block}[which]()


@workflow(name="asked.shields")
def shields() -> Workflow[None]:
    yield from shield(plain())


@workflow(name="asked.gives_up")
def gives_up() -> Workflow[None]:
    handle = yield from spawn(plain())
    yield from sleep(2)
    yield from handle.cancel()


@in_own_transactions
@pytest.mark.parametrize("which", ["plain", "in a loop"])
def test_a_body_that_asks_learns_of_a_cancel_without_a_heartbeat(pump: Pump, which: str) -> None:
    hooks.append(cancelled(pump))
    handle = runs.start(which)
    pump.finish()
    assert seen == [False, True]
    assert (handle.status, StepResult.objects.get().heartbeat_at) == ("CANCELLED", None)


@in_own_transactions
@pytest.mark.server
@pytest.mark.parametrize("which", ["atomic", "in a block"])
def test_a_body_that_asks_inside_a_transaction_learns_of_a_cancel(pump: Pump, which: str) -> None:
    hooks.append(cancelled(pump))
    handle = runs.start(which)
    pump.finish()
    assert seen == [False, True]
    assert handle.status == "CANCELLED"


@in_own_transactions
def test_a_body_that_was_given_up_and_one_that_is_overdue_are_told(pump: Pump) -> None:
    hooks.append(lambda: pump.advance_time(5))
    gives_up.start()
    pump.finish()
    hooks.append(lambda: pump.advance_time(40))
    runs.start("plain")
    pump.finish()
    assert seen == [False, True] * 2


@in_own_transactions
def test_a_shielded_body_is_not_asked_to_stop(pump: Pump) -> None:
    hooks.append(cancelled(pump))
    handle = shields.start()
    pump.finish()
    assert (seen, handle.status) == ([False, False], "CANCELLED")


@in_own_transactions
def test_asking_reads_the_row_once_a_second_and_no_more_once_told(pump: Pump) -> None:
    def ask() -> None:
        with counted() as sent:
            told = [current_step().cancel_requested for _ in range(1000)]
        seen.append((set(told), len(sent)))

    def ask_and_cancel() -> None:
        ask()
        cancelled(pump, after=0.9)()
        ask()
        pump.now += timedelta(seconds=0.2)
        ask()
        ask()

    hooks.append(ask_and_cancel)
    runs.start("plain")
    pump.finish()
    assert seen[1:-1] == [({False}, 0), ({False}, 0), ({True}, 1), ({True}, 0)]


@in_own_transactions
def test_while_the_database_is_away_the_last_answer_stands(pump: Pump, monkeypatch: pytest.MonkeyPatch) -> None:
    def away(*args: Any, **kwargs: Any) -> Any:
        raise OperationalError("server closed the connection unexpectedly")

    def come_and_go() -> None:
        with monkeypatch.context() as patched:
            patched.setattr(runtime.current().store, "asked", away)
            cancelled(pump)()
            seen.append(current_step().cancel_requested)
        pump.now += timedelta(seconds=1)

    hooks.append(come_and_go)
    runs.start("plain")
    pump.finish()
    assert seen == [False, False, True]


def beats_seen_by_others() -> None:
    current_step().heartbeat({"page": 7})
    elsewhere(lambda: seen.append(StepResult.objects.values_list("last_heartbeat", flat=True)[0]))


@in_own_transactions
@pytest.mark.server
@pytest.mark.parametrize("which", ["atomic", "in a block"])
def test_a_heartbeat_inside_a_transaction_is_seen_at_once(pump: Pump, which: str) -> None:
    hooks.append(beats_seen_by_others)
    handle = runs.start(which)
    pump.finish()
    assert seen == [False, '{"page":7}', False]
    assert handle.status == "COMPLETED"


@in_own_transactions
def test_a_heartbeat_of_an_async_body_is_noted(pump: Pump) -> None:
    hooks.append(lambda: current_step().heartbeat({"page": 7}))
    handle = runs.start("in a loop")
    pump.finish()
    assert handle.status == "COMPLETED"
    assert StepResult.objects.get().last_heartbeat == '{"page":7}'


@pytest.mark.django_db
@pytest.mark.parametrize("which", ["plain", "in a loop", "atomic", "in a block"])
def test_in_the_transaction_of_a_test_all_of_it_is_seen(durable: Harness, which: str) -> None:
    hooks.append(lambda: current_step().heartbeat({"page": 7}))
    run = durable.run(runs, which)
    assert (run.status, seen) == ("COMPLETED", [False, False])
    assert StepResult.objects.get().last_heartbeat == '{"page":7}'
