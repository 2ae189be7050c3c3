"""Children whole: started with their parent's turn, ended with its row, over the real database."""

from __future__ import annotations

from typing import Any

import pytest

from django_app.models import StepResult, WorkflowInstance
from durable_celery import ChildFailed, Workflow, WorkflowFailed, gather, step, workflow
from tests.pump import Pump


class CardDeclined(Exception):
    def __init__(self, code: int, *, hint: str) -> None:
        super().__init__(f"declined with {code}")
        self.code = code


@step(name="children.double", retry=None)
def double(number: int) -> int:
    return number * 2


@step(name="children.charge", retry=None)
def charge(number: int) -> int:
    raise CardDeclined(number, hint="try another")


@workflow(name="children.doubling")
def doubling(number: int) -> Workflow[int]:
    return (yield from double(number))


@workflow(name="children.charging")
def charging(number: int) -> Workflow[int]:
    return (yield from charge(number))


@workflow(name="children.one")
def one(number: int) -> Workflow[int]:
    return (yield from doubling(number)) + 1


@workflow(name="children.many")
def many(count: int) -> Workflow[list[int]]:
    return list((yield from gather(*[doubling(number) for number in range(count)])))


@workflow(name="children.declined")
def declined(number: int) -> Workflow[Any]:
    try:
        yield from charging(number)
    except ChildFailed as error:
        return [error.workflow, error.position, error.child_status, error.matches(CardDeclined)]
    return None


@workflow(name="children.passing_on")
def passing_on(number: int) -> Workflow[int]:
    return (yield from charging(number))


@workflow(name="children.passing_on_again")
def passing_on_again(number: int) -> Workflow[int]:
    return (yield from passing_on(number))


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
