"""O-27: a release that does not fit is found out once an instance and changes nothing, however often the tick comes."""

from __future__ import annotations

import pytest

from django_app.models import Marker, Message, StepAttempt, StepResult, WorkflowInstance
from durable_celery import Workflow, sleep, step
from tests.pump import Pump, release

NAME = "tests.cases.test_o27.ordered"
ran: list[str] = []
turns: list[str] = []


@step
def a() -> None:
    ran.append("a")


@step
def b() -> None:
    ran.append("b")


def first_a() -> Workflow[None]:
    turns.append("first_a")
    yield from a()
    yield from sleep(5)
    yield from b()


def first_b() -> Workflow[None]:
    turns.append("first_b")
    yield from b()
    yield from sleep(5)
    yield from a()


def still_first_b() -> Workflow[None]:
    turns.append("still_first_b")
    yield from b()
    yield from a()
    yield from sleep(5)


def rows() -> list[int]:
    return [model.objects.count() for model in (StepResult, StepAttempt, Marker, Message)]


@pytest.fixture(autouse=True)
def _clean() -> None:
    ran.clear()
    turns.clear()


def test_o27_twenty_ticks_find_the_mismatch_once_and_add_no_row(pump: Pump) -> None:
    handles = [release(NAME, first_a).start() for _ in range(3)]
    pump.drain()
    assert ran == ["a"] * 3
    before = rows()
    release(NAME, first_b)
    turns.clear()
    pump.advance_time(seconds=6)
    assert [handle.status for handle in handles] == ["BLOCKED"] * 3
    assert rows() == before
    assert turns == ["first_b"] * 3
    journals = [handle.history() for handle in handles]
    revisions = list(WorkflowInstance.objects.order_by("id").values_list("revision", flat=True))
    for _ in range(20):
        pump.advance_time(seconds=1)
    assert rows() == before
    assert turns == ["first_b"] * 3
    assert ran == ["a"] * 3
    assert [handle.history() for handle in handles] == journals
    assert list(WorkflowInstance.objects.order_by("id").values_list("revision", flat=True)) == revisions


def test_o27_each_new_version_of_the_code_is_tried_once(pump: Pump) -> None:
    handle = release(NAME, first_a).start()
    pump.drain()
    before = rows()
    turns.clear()
    for body in (first_b, still_first_b, first_b):
        release(NAME, body)
        for _ in range(20):
            pump.advance_time(seconds=1)
    assert turns == ["first_b", "still_first_b"]
    assert rows() == before
    assert handle.status == "BLOCKED"
    release(NAME, first_a)
    pump.advance_time(seconds=10)
    assert handle.status == "COMPLETED"
    assert ran == ["a", "b"]


def test_o27_hints_to_a_blocked_instance_are_harmless(pump: Pump) -> None:
    handle = release(NAME, first_a).start()
    pump.drain()
    release(NAME, first_b)
    pump.advance_time(seconds=6)
    before = rows()
    turns.clear()
    for _ in range(20):
        pump.advance(handle._row().id)
    pump.drain()
    assert turns == []
    assert rows() == before
