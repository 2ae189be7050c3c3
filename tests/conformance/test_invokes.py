from __future__ import annotations

from typing import Any

import pytest
from celery import chain, group, shared_task, signature

from durable_celery import ChildFailed, KeyConflict, StepFailed, Workflow, canvas, gather, workflow
from tests.conformance.lives import ran, run, say, start
from tests.pump import Pump


@shared_task(name="checklist.add")
def add(a: int, b: int) -> int:
    ran.append((a, b))
    return a + b


@shared_task(name="checklist.divide")
def divide(a: int, b: int) -> float:
    return a / b


@shared_task(name="checklist.stubborn", bind=True, max_retries=3, default_retry_delay=5)
def stubborn(self: Any, times: int) -> int:
    ran.append(self.request.retries)
    if self.request.retries < times:
        raise self.retry(exc=ConnectionError("busy"))
    return int(self.request.retries)


@workflow(name="checklist.keyed_child", key=lambda order: f"order-{order}")
def keyed_child(order: int) -> Workflow[int]:
    yield from say(order)
    return order


def test_an_existing_task_gives_its_result(pump: Pump) -> None:
    def body() -> Any:
        a = yield add.s(1, 2)
        return (yield from canvas(add.s(a, 10)))

    assert run(pump, body) == 13
    assert ran == [(1, 2), (3, 10)]


def test_a_failing_task_raises_step_failed(pump: Pump) -> None:
    def body() -> Any:
        try:
            yield divide.s(1, 0)
        except StepFailed as error:
            return error.step, error.matches(ZeroDivisionError)

    assert run(pump, body) == ("checklist.divide", True)


def test_a_task_keeps_its_own_retries(pump: Pump) -> None:
    def body() -> Any:
        return (yield stubborn.s(2))

    assert run(pump, body) == 2
    assert ran == [0, 1, 2]


def test_a_task_out_of_its_own_retries_fails(pump: Pump) -> None:
    def body() -> Any:
        try:
            yield stubborn.s(99)
        except StepFailed as error:
            return error.matches(ConnectionError)

    assert run(pump, body) is True
    assert ran == [0, 1, 2, 3]


def test_a_chain_hands_results_on(pump: Pump) -> None:
    def body() -> Any:
        return (yield chain(add.s(1, 2), add.s(10), add.s(100)))

    assert run(pump, body) == 113


def test_a_group_gives_results_in_order(pump: Pump) -> None:
    def body() -> Any:
        return (yield group(add.s(n, n) for n in range(3)))

    assert list(run(pump, body)) == [0, 2, 4]


def test_a_step_then_a_task_then_a_child(pump: Pump) -> None:
    def body() -> Any:
        first = yield from say(1)
        second = yield add.s(first, 1)
        return (yield from keyed_child(second))

    assert run(pump, body) == 2


def test_a_child_has_the_key_of_its_arguments(pump: Pump) -> None:
    def body() -> Any:
        return (yield from keyed_child(7))

    assert run(pump, body) == 7
    assert keyed_child.get(key="order-7").result(timeout=0) == 7


def test_a_child_whose_key_is_taken_fails(pump: Pump) -> None:
    def body() -> Any:
        try:
            yield from gather(keyed_child(7), keyed_child(7))
        except ChildFailed as error:
            return error.matches(KeyConflict), error.child_id

    assert run(pump, body) == (True, "")
    assert ran == [7]


def test_an_unknown_task_fails_the_step_that_names_it(pump: Pump) -> None:
    def body() -> Any:
        try:
            yield signature("nobody.knows", args=(1,))
        except StepFailed as error:
            return error.step, "nobody.knows" in error.message

    assert run(pump, body) == ("nobody.knows", True)


def test_arguments_a_child_does_not_take_are_refused_where_it_is_called(pump: Pump) -> None:
    def body() -> Any:
        yield from keyed_child(1, 2)  # type: ignore[call-arg]

    handle = start(body)
    pump.drain()
    assert handle.status == "BLOCKED"
    assert "keyed_child" in handle.waiting_for


def test_calling_a_workflow_or_step_outside_says_what_to_do(pump: Pump) -> None:
    from durable_celery import NotInWorkflow

    with pytest.raises(NotInWorkflow, match=r"\.start\("):
        keyed_child(1)  # type: ignore[unused-awaitable]
    with pytest.raises(NotInWorkflow, match=r"\.call\("):
        say(1)  # type: ignore[unused-awaitable]
