"""Workflows that the tests of children run."""

from __future__ import annotations

from typing import Any

import pytest

from django_app.models import WorkflowInstance
from durable_celery import (
    CancelRequested,
    Signal,
    Workflow,
    WorkflowHandle,
    gather,
    spawn,
    step,
    workflow,
)


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


@workflow(name="children.passing_on")
def passing_on(number: int) -> Workflow[int]:
    return (yield from charging(number))


@workflow(name="children.passing_on_again")
def passing_on_again(number: int) -> Workflow[int]:
    return (yield from passing_on(number))


go = Signal("go", str)


@workflow(name="children.waiting")
def waiting(name: str) -> Workflow[str]:
    try:
        return (yield from go.wait())
    except CancelRequested as asked:
        yield from note(f"{name}: {asked.reason}")
        raise


@step(name="children.note", retry=None)
def note(text: str) -> None:
    noted.append(text)


noted: list[str] = []


@pytest.fixture(autouse=True)
def nothing_noted() -> None:
    noted.clear()


def child_of(handle: WorkflowHandle[Any]) -> WorkflowInstance:
    found: WorkflowInstance = WorkflowInstance.objects.get(parent_id=handle.id)
    return found


@workflow(name="children.fire_and_forget", fails_on=CardDeclined)
def fire_and_forget(how: str, parent_close: str, key: str | None = None) -> Workflow[str]:
    """A child that is asked for in the last turn."""
    yield from spawn(doubling.using(parent_close=parent_close, key=key)(21))
    if how == "fails":
        raise CardDeclined(1, hint="none")
    return how
