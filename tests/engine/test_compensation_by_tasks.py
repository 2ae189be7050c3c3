"""What a step did may be taken back by an existing Celery task as well."""

from __future__ import annotations

from typing import Any

import pytest
from celery import chain, shared_task

from durable_celery import RetryPolicy, Saga, Workflow, WorkflowFailed, canvas, step, workflow
from tests.pump import Pump

pytestmark = pytest.mark.django_db(transaction=True)

seen: list[Any] = []


@step(name="undone.charge", retry=RetryPolicy(maximum_attempts=1))
def charge(number: int) -> int:
    seen.append(("charge", number))
    return number


@shared_task(name="undone.refund")
def refund(number: int) -> None:
    seen.append(("refund", number))


@workflow(name="undone.by_itself")
def by_itself() -> Workflow[None]:
    yield from charge(1).compensate_with(refund.s(10))  # type: ignore[arg-type]  # canvas(...) is the typed form
    yield from charge(2).compensate_with(canvas(refund.si(20)))
    raise WorkflowFailed("no stock")


@workflow(name="undone.by_hand")
def by_hand() -> Workflow[None]:
    saga = Saga()
    for number in (1, 2):
        yield from charge(number)
        saga.add(refund.s(number * 10))  # type: ignore[arg-type]
    yield from saga.compensate()


@workflow(name="undone.by_a_chain")
def by_a_chain() -> Workflow[None]:
    yield from charge(1).compensate_with(chain(refund.si(1), refund.si(2)))  # type: ignore[arg-type]


@pytest.mark.parametrize(("wf", "ends"), [(by_itself, "FAILED"), (by_hand, "COMPLETED")])
def test_the_signature_of_a_task_takes_back(pump: Pump, wf: Any, ends: str) -> None:
    seen.clear()
    handle = wf.start()
    pump.finish()
    assert handle.status == ends
    assert seen == [("charge", 1), ("charge", 2), ("refund", 20), ("refund", 10)]


def test_a_canvas_of_several_tasks_does_not_and_says_what_does(pump: Pump) -> None:
    handle = by_a_chain.start()
    pump.finish()
    assert handle.status == "BLOCKED"
    assert "compensate_with takes a step, or a step command with its arguments" in handle.waiting_for
