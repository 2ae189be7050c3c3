"""O-30: a signal sent with the start, or right after it, is there for the first turn."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import transaction

from durable_celery import InstanceClosed, Signal, Workflow, WorkflowFailed, step, workflow
from tests.project.testapp.case_errors import go as their_go
from tests.project.testapp.case_errors import going
from tests.pump import Pump

go = Signal("go", int)


@step
def work() -> None:
    pass


@workflow
def taking() -> Workflow[int]:
    return (yield from go.wait(timeout=0))


@workflow
def taking_later() -> Workflow[tuple[int, int]]:
    yield from work()
    first = yield from go.wait(timeout=0)
    second = yield from go.wait(timeout=0)
    return first, second


def test_o30_a_signal_sent_after_the_start_and_before_any_worker_is_taken(pump: Pump) -> None:
    handle = taking.start()
    handle.signal("go", 1)
    pump.drain()
    assert handle.result(timeout=0) == 1


def test_o30_a_signal_sent_with_the_start_is_taken(pump: Pump) -> None:
    handle = taking.using(signal=(go, 1)).start()
    pump.drain()
    assert handle.result(timeout=0) == 1


def test_o30_a_signal_of_the_same_transaction_is_taken(pump: Pump) -> None:
    with transaction.atomic():
        handle = taking.start()
        go.send(handle, 1)
        assert pump.queue == []
    pump.drain()
    assert handle.result(timeout=0) == 1


def test_o30_signals_wait_in_order_for_the_place_that_takes_them(pump: Pump) -> None:
    handle = taking_later.start()
    go.send(handle, 1)
    go.send(handle, 2)
    pump.finish()
    assert handle.result(timeout=0) == (1, 2)


def test_o30_one_that_came_while_the_first_turn_was_taken_is_not_lost(pump: Pump) -> None:
    """The turn has loaded no signal and would end the instance; the signal comes before its commit."""
    handle = taking.start()
    told: list[str] = []

    def send_once(point: str) -> None:
        if point == "turn.before_commit" and not told:
            told.append("sent")
            try:
                go.send(handle, 1)
            except InstanceClosed:
                told.append("closed")

    from durable_celery import faults

    faults.set_hook(send_once)
    pump.finish()
    faults.set_hook(None)
    assert told == ["sent"]
    assert handle.result(timeout=0) == 1


def test_o30_with_no_signal_the_wait_of_no_time_fails_at_once(pump: Pump) -> None:
    handle = taking.start()
    pump.advance_time(seconds=2)
    with pytest.raises(WorkflowFailed, match="no signal 'go'"):
        handle.result(timeout=0)


@pytest.mark.prefork
@pytest.mark.django_db(transaction=True)
def test_o30_sent_while_no_worker_runs_it_is_there_when_one_does(start_worker: Any) -> None:
    handles = [going.start() for _ in range(5)]
    for number, handle in enumerate(handles):
        handle.signal("go", number)
    with_start = going.using(signal=(their_go, 7)).start()
    assert [handle.status for handle in handles] == ["PENDING"] * 5
    start_worker(env={"TEST_DURABLE_CELERY": '{"TICK": 0.2}'})
    assert [handle.result(timeout=60) for handle in handles] == [0, 1, 2, 3, 4]
    assert with_start.result(timeout=60) == 7
