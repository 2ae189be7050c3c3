from __future__ import annotations

from typing import Any

import pytest

from durable_celery import (
    ChildFailed,
    Signal,
    Workflow,
    WorkflowCancelled,
    WorkflowFailed,
    current_workflow,
    gather,
    get_handle,
    sleep,
    spawn,
    workflow,
)
from tests.conformance.lives import fail, ran, run, say, start
from tests.pump import Pump

ids: list[str] = []
go = Signal("checklist.go")


@workflow(name="checklist.child")
def child(value: Any) -> Workflow[Any]:
    yield from say(value)
    yield from sleep(10)
    return value


@workflow(name="checklist.failing_child")
def failing_child() -> Workflow[Any]:
    yield from fail("the child broke")


@workflow(name="checklist.waiting_child")
def waiting_child() -> Workflow[Any]:
    ids.append(current_workflow().id)
    return (yield from go.wait())


@pytest.fixture(autouse=True)
def _no_ids() -> None:
    ids.clear()


def test_a_child_gives_its_result(pump: Pump) -> None:
    def body() -> Any:
        return (yield from child("done"))

    assert run(pump, body) == "done"
    assert ran == ["done"]


def test_a_child_that_is_done_is_not_run_again_on_replay(pump: Pump) -> None:
    def body() -> Any:
        first = yield from child("once")
        yield from sleep(60)
        return first, (yield from say("after"))

    assert run(pump, body) == ("once", "after")
    assert ran == ["once", "after"]


def test_children_of_children(pump: Pump) -> None:
    @workflow(name="checklist.middle")
    def middle(value: int) -> Workflow[int]:
        return (yield from child(value + 1))

    def body() -> Any:
        return (yield from middle(1))

    assert run(pump, body) == 2


def test_a_failing_child_raises_child_failed(pump: Pump) -> None:
    def body() -> Any:
        try:
            yield from failing_child()
        except ChildFailed as error:
            return error.workflow, error.child_status, error.position, error.matches(ValueError)

    assert run(pump, body) == ("checklist.failing_child", "FAILED", "1", True)


def test_a_failure_of_a_child_nobody_catches_fails_its_parent(pump: Pump) -> None:
    def body() -> Any:
        yield from failing_child()

    with pytest.raises(WorkflowFailed, match="the child broke") as caught:
        run(pump, body)
    assert caught.value.matches(ChildFailed, ValueError)


def test_a_cancelled_child_raises_child_failed(pump: Pump) -> None:
    def body() -> Any:
        try:
            yield from waiting_child()
        except ChildFailed as error:
            return error.child_status

    handle = start(body)
    pump.drain()
    get_handle(ids[0]).cancel()
    pump.drain()
    assert handle.result(timeout=0) == "CANCELLED"


def test_a_terminated_child_raises_child_failed(pump: Pump) -> None:
    def body() -> Any:
        try:
            yield from waiting_child()
        except ChildFailed as error:
            return error.child_status

    handle = start(body)
    pump.drain()
    get_handle(ids[0]).terminate()
    pump.drain()
    assert handle.result(timeout=0) == "TERMINATED"


def test_a_child_over_its_execution_timeout_raises_child_failed(pump: Pump) -> None:
    def body() -> Any:
        try:
            yield from waiting_child.using(execution_timeout=60)()
        except ChildFailed as error:
            return error.child_status, error.matches("durable_celery.errors.WorkflowTimedOut")

    assert run(pump, body) == ("FAILED", True)


def test_positions_of_a_child_are_its_own(pump: Pump) -> None:
    def body() -> Any:
        yield from say("a")
        yield from child("b")
        yield from say("c")

    handle = start(body)
    pump.finish()
    assert [(entry.position, entry.kind) for entry in handle.history()] == [
        ("1", "step"),
        ("2", "child"),
        ("3", "step"),
    ]


def test_the_same_child_twice_is_two_instances(pump: Pump) -> None:
    def body() -> Any:
        return (yield from child(1)), (yield from child(1))

    assert run(pump, body) == (1, 1)
    assert ran == [1, 1]


def test_children_side_by_side_give_results_in_order(pump: Pump) -> None:
    def body() -> Any:
        return (yield from gather(*(child(n) for n in range(4))))

    assert run(pump, body) == (0, 1, 2, 3)
    assert sorted(ran) == [0, 1, 2, 3]


def test_a_child_started_beside_the_body_is_joined_later(pump: Pump) -> None:
    def body() -> Any:
        handle = yield from spawn(child("beside"))
        yield from say("meanwhile")
        return (yield from handle)

    assert run(pump, body) == "beside"
    assert sorted(ran) == ["beside", "meanwhile"]


def test_a_child_takes_signals_of_its_own(pump: Pump) -> None:
    def body() -> Any:
        return (yield from waiting_child())

    handle = start(body)
    pump.drain()
    go.send(get_handle(ids[0]), "forward")
    pump.drain()
    assert handle.result(timeout=0) == "forward"


def test_a_child_knows_its_parent(pump: Pump) -> None:
    @workflow(name="checklist.knowing")
    def knowing() -> Workflow[Any]:
        return (yield from say(current_workflow().parent_id))

    def body() -> Any:
        return (yield from knowing())

    handle = start(body)
    pump.finish()
    assert handle.result(timeout=0) == handle.id


@pytest.mark.parametrize(
    ("policy", "state"), [("cancel", "CANCELLED"), ("terminate", "TERMINATED"), ("abandon", "WAITING")]
)
def test_what_becomes_of_a_child_when_its_parent_ends(pump: Pump, policy: str, state: str) -> None:
    def body() -> Any:
        yield from spawn(waiting_child.using(parent_close=policy)())
        yield from sleep(1)
        return "parent is done"

    handle = start(body)
    pump.finish()
    assert (handle.result(timeout=0), get_handle(ids[0]).status) == ("parent is done", state)


def test_a_cancel_of_the_parent_waits_for_the_cleanup_of_its_child(pump: Pump) -> None:
    @workflow(name="checklist.cleaning_child")
    def cleaning() -> Workflow[Any]:
        try:
            yield from sleep(days=1)
        finally:
            yield from say("child cleaned up")

    def body() -> Any:
        try:
            yield from cleaning()
        finally:
            yield from say("parent cleaned up")

    handle = start(body)
    pump.drain()
    handle.cancel()
    pump.drain()
    with pytest.raises(WorkflowCancelled):
        handle.result(timeout=0)
    assert ran == ["child cleaned up", "parent cleaned up"]


def test_a_helper_generator_is_a_scope_whose_yields_count_on(pump: Pump) -> None:
    def helper(value: str) -> Any:
        yield from say(value)
        yield from sleep(1)
        return value.upper()

    def body() -> Any:
        return (yield from helper("a")), (yield from helper("b"))

    handle = start(body)
    pump.finish()
    assert handle.result(timeout=0) == ("A", "B")
    assert [entry.position for entry in handle.history()] == ["1", "2", "3", "4"]
