"""Children under task_always_eager: at once, in this process, with the same values and errors."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from durable_celery import ChildFailed, Workflow, WorkflowFailed, gather, step, workflow
from durable_celery.celery.current_app import current_app


@step(name="eager_children.double", retry=None)
def double(number: int) -> int:
    if number < 0:
        raise LookupError("below nothing")
    return number * 2


@workflow(name="eager_children.doubling")
def doubling(number: int) -> Workflow[int]:
    return (yield from double(number))


@workflow(name="eager_children.many")
def many(numbers: list[int]) -> Workflow[Any]:
    return (yield from gather(*map(doubling, numbers)))


@pytest.fixture
def eager() -> Iterator[None]:
    conf = current_app().conf  # a test before may have left another app as this thread's
    conf.task_always_eager = True
    yield
    conf.task_always_eager = False


@pytest.mark.django_db(transaction=True)
def test_a_family_runs_at_once(eager: None) -> None:
    assert many.start([1, 2, 3]).result(timeout=0) == (2, 4, 6)
    with pytest.raises(WorkflowFailed) as caught:
        many.start([1, -1]).result(timeout=0)
    assert caught.value.matches(ChildFailed)
    assert caught.value.matches(LookupError)
