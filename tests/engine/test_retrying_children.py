"""retry() across parents and children: what a parent has seen stays, what it has not is taken back."""

from __future__ import annotations

from typing import Any

import pytest

from django_app.models import StepResult, WorkflowInstance
from durable_celery import (
    ChildFailed,
    NotRetryable,
    Signal,
    Workflow,
    WorkflowFailed,
    WorkflowHandle,
    faults,
    gather,
    get_handle,
    spawn,
    step,
    workflow,
)
from tests.pump import Pump

go = Signal("go", str)
luck: dict[str, Any] = {}


@pytest.fixture(autouse=True)
def no_luck() -> None:
    luck.clear()
    luck["fails"] = True


@step(name="retrying.try_it", retry=None)
def try_it() -> str:
    if luck["fails"]:
        raise LookupError("no luck")
    return "luck"


@workflow(name="retrying.child")
def child() -> Workflow[str]:
    return (yield from try_it())


@workflow(name="retrying.wait_for_it")
def wait_for_it() -> Workflow[str]:
    return (yield from go.wait())


@workflow(name="retrying.parent")
def parent() -> Workflow[Any]:
    return (yield from child())


@workflow(name="retrying.grandparent")
def grandparent() -> Workflow[Any]:
    return (yield from parent())


@workflow(name="retrying.both")
def both() -> Workflow[Any]:
    return (yield from gather(child(), wait_for_it()))


@workflow(name="retrying.catching")
def catching() -> Workflow[Any]:
    try:
        yield from child()
    except ChildFailed:
        return (yield from go.wait())


@workflow(name="retrying.keyed")
def keyed() -> Workflow[Any]:
    return (yield from wait_for_it.using(key="k")())


@workflow(name="retrying.beside")
def beside() -> Workflow[Any]:
    work = yield from spawn(wait_for_it())
    luck = yield from try_it()
    return [luck, (yield from work)]


def only(name: str) -> WorkflowHandle[Any]:
    return get_handle(WorkflowInstance.objects.get(name=name).chain_id)


def test_a_failure_the_parent_has_not_seen_is_taken_back(pump: Pump) -> None:
    handle = both.start()
    pump.drain()
    assert only("retrying.child").status == "FAILED"
    assert handle.status == "WAITING"
    luck["fails"] = False
    only("retrying.child").retry()
    row = StepResult.objects.get(instance_id=handle.run_id, position="1.0")
    assert (row.state, row.failure, row.finished_at, row.look_at) == ("RUNNING", None, None, None)
    pump.advance_time(4)
    go.send(only("retrying.wait_for_it"), "on")
    pump.drain()
    assert handle.result(timeout=0) == ("luck", "on")


def test_one_that_the_parent_has_seen_is_not(pump: Pump) -> None:
    handle = catching.start()
    pump.drain()
    assert handle.status == "WAITING"
    with pytest.raises(NotRetryable, match=r"is the child of .* at 1, which has taken its failure in"):
        only("retrying.child").retry()
    assert only("retrying.child").status == "FAILED"
    go.send(handle, "on")
    pump.drain()
    assert handle.result(timeout=0) == "on"


def test_a_turn_of_the_parent_under_way_loses_against_the_retry(pump: Pump) -> None:
    """It has read the failure, and would take in what is open again by the time it commits."""
    handle = both.start()
    pump.drain()
    go.send(only("retrying.wait_for_it"), "on")
    retried: list[str] = []

    def retry_once(point: str) -> None:
        row = StepResult.objects.get(instance_id=handle.run_id, position="1.1")
        if point == "turn.before_commit" and row.state == "SUCCEEDED" and not retried:
            retried.append(point)
            luck["fails"] = False
            only("retrying.child").retry()

    faults.set_hook(retry_once)
    pump.drain()
    assert retried
    assert handle.result(timeout=0) == ("luck", "on")


def test_a_parent_opens_the_child_that_failed_it_again_through_generations(pump: Pump) -> None:
    handle = grandparent.start()
    pump.drain()
    with pytest.raises(WorkflowFailed) as caught:
        handle.result(timeout=0)
    assert caught.value.matches(LookupError)
    luck["fails"] = False
    handle.retry()
    assert set(WorkflowInstance.objects.values_list("state", flat=True)) == {"RUNNING"}
    assert StepResult.objects.filter(kind="child", state="RUNNING", taken_turn=None).count() == 2
    pump.advance_time(4)
    assert handle.result(timeout=0) == "luck"
    assert WorkflowInstance.objects.count() == 3


def test_it_fails_again_if_the_child_does(pump: Pump) -> None:
    handle = parent.start()
    pump.drain()
    handle.retry()
    pump.advance_time(4)
    assert handle.status == "FAILED"
    assert only("retrying.child").history()[0].attempts == 2


def test_a_child_that_cannot_be_retried_holds_its_parent(pump: Pump) -> None:
    handle = keyed.start()
    pump.drain()
    only("retrying.wait_for_it").terminate()
    pump.drain()
    assert handle.status == "FAILED"
    with pytest.raises(NotRetryable, match=r"failed of its child retrying.wait_for_it at 1, .* is TERMINATED"):
        handle.retry()
    assert handle.status == "FAILED"
    assert only("retrying.wait_for_it").status == "TERMINATED"


def test_a_child_that_never_was_for_its_key_is_started(pump: Pump) -> None:
    other = wait_for_it.using(key="k").start()
    handle = keyed.start()
    pump.drain()
    assert handle.status == "FAILED"
    handle.retry()
    pump.advance_time(4)
    assert handle.status == "FAILED"  # the key is still taken
    go.send(other, "other")
    pump.drain()
    handle.retry()
    pump.advance_time(4)
    assert wait_for_it.get(key="k").status == "WAITING"
    go.send(wait_for_it.get(key="k"), "mine")
    pump.drain()
    assert handle.result(timeout=0) == "mine"
    assert WorkflowInstance.objects.filter(parent_id=handle.id).count() == 1


def test_a_fork_has_children_of_its_own(pump: Pump) -> None:
    handle = beside.start()
    pump.drain()
    assert handle.status == "FAILED"
    assert only("retrying.wait_for_it").status == "CANCELLED"
    luck["fails"] = False
    fork = handle.fork("2")
    pump.drain()
    child = WorkflowInstance.objects.get(parent_id=fork.id)
    assert (child.state, child.parent_position) == ("WAITING", "1.0")
    go.send(child, "on")
    pump.drain()
    assert fork.result(timeout=0) == ["luck", "on"]


def test_a_parent_that_ended_its_child_cannot_be_retried(pump: Pump) -> None:
    handle = beside.start()
    pump.drain()
    with pytest.raises(NotRetryable, match=r"ended its child retrying.wait_for_it at 1.0 when it failed"):
        handle.retry()
    assert handle.status == "FAILED"
