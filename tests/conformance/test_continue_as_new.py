from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from durable_celery import (
    Signal,
    Workflow,
    WorkflowCancelled,
    WorkflowFailed,
    continue_as_new,
    current_workflow,
    sleep,
    spawn,
    workflow,
)
from tests.conformance.lives import ran, run, say, start
from tests.pump import Pump

word = Signal("checklist.can_word")


def counts(left: int) -> Any:
    yield from say(left)
    yield from sleep(10)
    if left:
        return (yield from continue_as_new(left - 1))
    return "landed"


@workflow(name="checklist.successor")
def successor(value: str) -> Workflow[str]:
    yield from say(value)
    return value.upper()


def test_a_chain_of_runs_gives_the_result_of_the_last(pump: Pump) -> None:
    handle = start(counts, 3)
    pump.finish()
    assert (handle.result(timeout=0), ran) == ("landed", [3, 2, 1, 0])


def test_each_run_begins_with_an_empty_history(pump: Pump) -> None:
    handle = start(counts, 3)
    pump.finish()
    assert [entry.position for entry in handle.history()] == ["1", "2"]


def test_the_id_stays_and_the_run_changes(pump: Pump) -> None:
    def body(first: str = "") -> Any:
        info = current_workflow()
        yield from say((info.id, info.run_id, info.run_number))
        if not first:
            return (yield from continue_as_new(info.run_id))

    handle = start(body)
    pump.finish()
    (id_1, run_1, n_1), (id_2, run_2, n_2) = ran
    assert id_1 == id_2 == handle.id == run_1
    assert (handle.run_id, n_1, n_2) == (run_2, 1, 2)
    assert run_1 != run_2


def test_unread_signals_go_on_to_the_next_run_in_order(pump: Pump) -> None:
    def body(heard: Any = ()) -> Any:
        heard = [*heard, (yield from word.wait())]
        if len(heard) < 3:
            return (yield from continue_as_new(heard))
        return heard

    handle = start(body)
    for n in range(3):
        word.send(handle, n)
    pump.finish()
    assert handle.result(timeout=0) == [0, 1, 2]


def test_another_workflow_takes_over(pump: Pump) -> None:
    def body() -> Any:
        return (yield from continue_as_new("over", workflow=successor))

    assert run(pump, body) == "OVER"


def test_a_parent_gets_the_result_of_the_last_run(pump: Pump) -> None:
    @workflow(name="checklist.repeats")
    def repeats(left: int) -> Workflow[str]:
        return (yield from continue_as_new(left - 1)) if left else (yield from say("last"))

    def body() -> Any:
        return (yield from repeats(2))

    assert run(pump, body) == "last"


def test_the_execution_time_out_is_that_of_the_whole_chain(pump: Pump) -> None:
    def body() -> Any:
        yield from sleep(40)
        return (yield from continue_as_new())

    with pytest.raises(WorkflowFailed) as caught:
        run(pump, body, execution_timeout=timedelta(seconds=100))
    assert caught.value.matches("durable_celery.errors.WorkflowTimedOut")


def test_a_cancel_reaches_the_newest_run(pump: Pump) -> None:
    handle = start(counts, 5)
    pump.advance_time(15)
    handle.cancel()
    pump.drain()
    with pytest.raises(WorkflowCancelled):
        handle.result(timeout=0)
    assert ran == [5, 4]


def test_open_work_is_refused(pump: Pump) -> None:
    def body() -> Any:
        yield from spawn(sleep(60))
        return (yield from continue_as_new())

    handle = start(body)
    pump.drain()
    assert (handle.status, "UsageError" in handle.waiting_for) == ("BLOCKED", True)


def test_an_unspent_compensation_is_refused(pump: Pump) -> None:
    def body() -> Any:
        yield from say("charged").compensate_with(say)
        return (yield from continue_as_new())

    handle = start(body)
    pump.drain()
    assert (handle.status, "UsageError" in handle.waiting_for) == ("BLOCKED", True)


def test_cleanup_runs_before_the_next_run(pump: Pump) -> None:
    def body(again: bool = True) -> Any:
        try:
            yield from say("work")
            if again:
                return (yield from continue_as_new(False))
        finally:
            yield from say("cleanup")

    handle = start(body)
    pump.finish()
    assert handle.status == "COMPLETED"
    assert ran == ["work", "cleanup", "work", "cleanup"]
