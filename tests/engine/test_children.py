"""Children: results, failures, cancellation down, and their end told up."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from django_app.models import StepResult, WorkflowInstance
from durable_celery import (
    ChildFailed,
    Workflow,
    WorkflowFailed,
    WorkflowTimedOut,
    get_handle,
    race,
    sleep,
    spawn,
    workflow,
)
from tests.engine.children import (
    CardDeclined,
    charge,
    charging,
    child_of,
    double,
    fire_and_forget,
    go,
    many,
    noted,
    nothing_noted,  # noqa: F401,
    one,
    passing_on_again,
    waiting,
)
from tests.pump import Pump


@workflow(name="children.declined")
def declined(number: int) -> Workflow[Any]:
    try:
        yield from charging(number)
    except ChildFailed as error:
        return [error.workflow, error.position, error.child_status, error.matches(CardDeclined)]
    return None


def test_a_child_runs_and_its_result_is_the_value(pump: Pump) -> None:
    handle = one.start(4)
    pump.drain()
    assert handle.result(timeout=0) == 9
    child = WorkflowInstance.objects.get(name="children.doubling")
    assert (str(child.parent_id), child.parent_position, str(child.root_id)) == (handle.run_id, "1", handle.id)
    (row,) = handle.history()
    assert (row.kind, row.name, row.state, row.args, row.result) == (
        "child", "children.doubling", "SUCCEEDED", ((4,), {}), 8,
    )  # fmt: skip


def test_many_children_wake_their_parent_once(pump: Pump) -> None:
    handle = many.start(100)
    pump.drain()
    assert handle.result(timeout=0) == [2 * number for number in range(100)]
    hints = [hint for hint in pump.sent if str(hint.instance) == handle.id]
    assert len(hints) == 2  # its start, and the end of its last child
    assert WorkflowInstance.objects.get(pk=handle.id).turn == 2


def test_the_error_of_a_step_is_matched_at_every_level(pump: Pump) -> None:
    assert declined.start(5).created
    handle = declined.start(7)
    deep = passing_on_again.start(7)
    pump.drain()
    assert handle.result(timeout=0) == ["children.charging", "1", "FAILED", True]
    with pytest.raises(WorkflowFailed) as caught:
        deep.result(timeout=0)
    error = caught.value
    assert error.matches(CardDeclined)
    assert error.matches(ChildFailed)
    assert not error.matches(ValueError)
    assert error.causes[-1].attributes == {"code": 7}
    assert str(error.causes[-1]) == "CardDeclined: declined with 7"
    assert StepResult.objects.filter(kind="child", state="FAILED").count() == 4


@workflow(name="children.parent")
def parent(close: str, then: str) -> Workflow[Any]:
    if then == "win":
        won = yield from race(child=waiting.using(parent_close=close)("c"), late=sleep(60))
        return won.name
    return (yield from waiting.using(parent_close=close)("c"))


@pytest.mark.parametrize(
    ("close", "state", "said"),
    [
        ("cancel", "CANCELLED", ["c: its parent ended TERMINATED"]),
        ("terminate", "TERMINATED", []),
        ("abandon", "WAITING", []),
    ],
)
def test_what_becomes_of_a_child_when_its_parent_is_terminated(
    pump: Pump, close: str, state: str, said: list[str]
) -> None:
    handle = parent.start(close, "wait")
    pump.drain()
    handle.terminate("stop")
    pump.drain()
    assert handle.status == "TERMINATED"
    assert child_of(handle).state == state
    assert noted == said
    assert not pump.ready()


@pytest.mark.parametrize(
    ("close", "state"), [("cancel", "CANCELLED"), ("terminate", "TERMINATED"), ("abandon", "COMPLETED")]
)
def test_what_becomes_of_a_child_when_its_parent_fails(pump: Pump, close: str, state: str) -> None:
    handle = spawning.start(close)
    pump.drain()
    assert handle.status == "FAILED"
    if close == "abandon":
        assert child_of(handle).state == "WAITING"
        go.send(child_of(handle), "on")
        pump.drain()
    assert child_of(handle).state == state
    (row,) = StepResult.objects.filter(instance_id=handle.run_id, kind="child")
    assert row.abandoned
    assert row.taken_turn is None
    assert row.state == {"CANCELLED": "CANCELLED", "TERMINATED": "FAILED", "COMPLETED": "SUCCEEDED"}[state]
    assert row.look_at is None


@workflow(name="children.spawning")
def spawning(close: str) -> Workflow[None]:
    yield from spawn(waiting.using(parent_close=close)("c"))
    yield from charge(1)


def test_a_cancel_goes_down_and_the_parent_ends_after_its_child(pump: Pump) -> None:
    handle = grandparent.start()
    pump.drain()
    assert handle.cancel("enough") == "requested"
    pump.drain()
    states = dict(WorkflowInstance.objects.values_list("name", "state"))
    assert set(states.values()) == {"CANCELLED"}
    assert noted == ["c: its parent was asked to end: its parent was asked to end: enough"]
    ends = WorkflowInstance.objects.in_bulk()
    child = next(i for i in ends.values() if i.name == "children.waiting")
    assert str(child.root_id) == handle.id
    assert handle.history()[0].state == "CANCELLED"


@workflow(name="children.grandparent")
def grandparent() -> Workflow[str]:
    return (yield from parent("cancel", "wait"))


def test_terminate_goes_down_through_generations(pump: Pump) -> None:
    handle = terminating.start()
    pump.drain()
    handle.terminate()
    pump.drain()
    assert set(WorkflowInstance.objects.values_list("state", flat=True)) == {"TERMINATED"}
    assert noted == []


@workflow(name="children.terminating")
def terminating() -> Workflow[Any]:
    return (yield from parent.using(parent_close="terminate")("terminate", "wait"))


def test_a_child_that_lost_a_race_is_cancelled_and_its_end_is_kept(pump: Pump) -> None:
    handle = parent.start("abandon", "win")
    pump.advance_time(61)
    assert handle.result(timeout=0) == "late"
    assert child_of(handle).state == "CANCELLED"
    assert noted == ["c: its parent does not need it any more"]
    row = StepResult.objects.get(instance_id=handle.run_id, kind="child")
    assert (row.state, row.abandoned, row.taken_turn) == ("CANCELLED", True, None)


def test_a_child_that_is_terminated_fails_its_parent(pump: Pump) -> None:
    handle = parent.start("cancel", "wait")
    pump.drain()
    get_handle(child_of(handle).pk).terminate("gone mad")
    pump.drain()
    with pytest.raises(WorkflowFailed, match="is TERMINATED: Terminated: gone mad") as caught:
        handle.result(timeout=0)
    assert caught.value.matches(ChildFailed)


def test_a_child_over_its_time_is_an_error_of_the_parent(pump: Pump) -> None:
    handle = hurrying.start()
    pump.drain()
    assert child_of(handle).deadline_at == child_of(handle).start_at + timedelta(seconds=60)
    pump.advance_time(61)
    assert handle.result(timeout=0) == ["FAILED", True, True]


@workflow(name="children.hurrying")
def hurrying() -> Workflow[Any]:
    try:
        yield from waiting.using(execution_timeout=60)("c")
    except ChildFailed as error:
        return [error.child_status, error.timed_out, error.matches(WorkflowTimedOut)]
    return None


def test_a_parent_over_its_time_takes_its_child_with_it(pump: Pump) -> None:
    handle = parent.using(execution_timeout=60).start("cancel", "wait")
    pump.drain()
    pump.advance_time(61)
    assert handle.status == "FAILED"
    assert child_of(handle).state == "CANCELLED"
    assert noted == ["c: its parent was asked to end: execution_timeout is over"]


def test_a_blocked_child_is_ended_with_its_parent(pump: Pump) -> None:
    handle = of_broken.start()
    pump.drain()
    assert child_of(handle).state == "BLOCKED"
    handle.cancel()
    pump.drain()
    assert (handle.status, child_of(handle).state) == ("CANCELLED", "CANCELLED")


@workflow(name="children.broken")
def broken() -> Workflow[None]:
    yield from double(1)
    raise ValueError("a bug")


@workflow(name="children.of_broken")
def of_broken() -> Workflow[None]:
    yield from broken()


def test_a_handle_gives_its_child_up(pump: Pump) -> None:
    handle = giving_up.start()
    pump.advance_time(61)
    assert handle.result(timeout=0) == [True, "children.waiting", "2.0", "CANCELLED", True]
    assert noted == ["c: its parent does not need it any more"]
    assert child_of(handle).state == "CANCELLED"


def test_a_cancel_of_the_body_leaves_a_spawned_child_running_until_its_end(pump: Pump) -> None:
    handle = leaving.start()
    pump.drain()
    handle.cancel()
    pump.drain()
    assert handle.status == "WAITING"  # for its cleanup
    assert child_of(handle).state == "WAITING"
    pump.advance_time(61)
    assert handle.status == "CANCELLED"
    assert child_of(handle).state == "CANCELLED"
    assert noted == ["c: its parent ended CANCELLED"]


@workflow(name="children.giving_up")
def giving_up() -> Workflow[Any]:
    yield from sleep(1)
    work = yield from spawn(waiting("c"))
    yield from sleep(60)
    stopped = yield from work.cancel()
    try:
        yield from work
    except ChildFailed as error:
        return [stopped, error.workflow, error.position, error.child_status, error.cancelled]
    return None


@workflow(name="children.leaving")
def leaving() -> Workflow[Any]:
    work = yield from spawn(waiting("c"))
    try:
        yield from work
    finally:
        yield from sleep(60)


@pytest.mark.parametrize("how", ["returns", "fails"])
def test_a_child_that_outlives_its_parent_starts_though_it_was_asked_for_in_the_last_turn(pump: Pump, how: str) -> None:
    handle = fire_and_forget.start(how, "abandon")
    pump.finish()
    assert handle.status == ("COMPLETED" if how == "returns" else "FAILED")
    assert (child_of(handle).state, child_of(handle).result) == ("COMPLETED", "42")


def test_a_child_that_ends_with_its_parent_never_starts_in_its_last_turn(pump: Pump) -> None:
    handle = fire_and_forget.start("returns", "cancel")
    pump.finish()
    assert handle.status == "COMPLETED"
    assert not WorkflowInstance.objects.filter(parent_id=handle.id).exists()
