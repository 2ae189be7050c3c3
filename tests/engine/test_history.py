"""Attributes that a body sets, and a journal that grows long: kept, said, stopped, and gone on with."""

from __future__ import annotations

import logging
from dataclasses import replace

import pytest

from django_app.models import StepResult, WorkflowInstance
from durable_celery import Signal, UsageError, Workflow, runtime, set_attributes, step, workflow
from durable_celery.errors import BadValue
from tests.pump import Pump

pytestmark = pytest.mark.django_db(transaction=True)

more = Signal("more", object)


@step(name="history.count")
def count(number: int) -> int:
    return number


@workflow(name="history.counts")
def counts(steps: int) -> Workflow[int]:
    total = 0
    for number in range(steps):
        total += yield from count(number)
    return total


@workflow(name="history.describes")
def describes(run: str) -> Workflow[None]:
    set_attributes(run=run, stage="new", tags=["a"])
    yield from more.wait()  # durable: ok
    set_attributes(stage="asked", tags=["b", {"deep": None}])
    yield from more.wait()  # durable: ok


def test_attributes_are_merged_with_those_of_the_start_and_found(pump: Pump) -> None:
    handle = describes.using(attributes={"customer": 7, "stage": "given"}).start("r1")
    describes.start("r2")
    pump.drain()
    row = WorkflowInstance.objects.get(pk=handle.id)
    assert row.attributes == {"customer": 7, "run": "r1", "stage": "new", "tags": ["a"]}
    assert list(WorkflowInstance.objects.with_attributes(stage="new", run="r1")) == [row]

    more.send(handle)
    pump.drain()
    row.refresh_from_db()
    assert row.attributes == {"customer": 7, "run": "r1", "stage": "asked", "tags": ["b", {"deep": None}]}
    assert list(WorkflowInstance.objects.with_attributes(stage="asked")) == [row]
    assert not WorkflowInstance.objects.with_attributes(stage="new", run="r1").exists()

    more.send(handle)
    pump.drain()
    row.refresh_from_db()
    assert (row.state, row.attributes["stage"]) == ("COMPLETED", "asked")


def test_an_earlier_turns_attributes_are_not_written_again(pump: Pump) -> None:
    handle = describes.start("r1")
    pump.drain()
    WorkflowInstance.objects.filter(pk=handle.id).update(attributes={"stage": "by hand"})
    more.send(handle)
    pump.drain()
    stage = WorkflowInstance.objects.get(pk=handle.id).attributes
    assert stage == {"stage": "asked", "tags": ["b", {"deep": None}]}


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ({1, 2}, "attributes['x'] is a set, expected plain JSON"),
        ({"a": [1, float("nan")]}, "attributes['x']['a'][1] is nan"),
        ("\0", "NUL"),
    ],
)
def test_an_attribute_that_is_no_plain_json_blocks_with_its_path(pump: Pump, value: object, words: str) -> None:
    @workflow(name="history.sets")
    def sets() -> Workflow[None]:
        set_attributes(x=value)
        yield from more.wait()  # durable: ok

    handle = sets.start()
    pump.drain()
    assert handle.status == "BLOCKED"
    assert words in handle.waiting_for
    assert issubclass(BadValue, UsageError)


def test_the_length_of_the_journal_stands_on_the_instance(pump: Pump) -> None:
    handle = counts.start(3)
    pump.finish()
    row = WorkflowInstance.objects.get(pk=handle.id)
    assert (row.state, row.history_length, StepResult.objects.count()) == ("COMPLETED", 3, 3)


def test_a_long_journal_is_said_once_in_the_log(transactional_db: None, caplog: pytest.LogCaptureFixture) -> None:
    with Pump(history_warn=4, history_limit=100) as pump, caplog.at_level(logging.WARNING, "durable_celery"):
        handle = counts.start(8)
        pump.finish()
    assert handle.result(timeout=0) == 28
    said = [record.getMessage() for record in caplog.records if "HISTORY_WARN" in record.getMessage()]
    (text,) = said
    assert "has 4 rows; HISTORY_WARN is 4, at HISTORY_LIMIT (100) it is BLOCKED" in text
    assert "continue_as_new" in text


def test_over_the_limit_it_is_blocked_with_advice_and_goes_on_once_that_is_raised(transactional_db: None) -> None:
    with Pump(history_warn=4, history_limit=5) as pump:
        handle = counts.start(8)
        pump.finish()
        assert handle.status == "BLOCKED"
        said = handle.waiting_for
        assert "would grow to 6 rows; HISTORY_LIMIT is 5" in said
        assert "return (yield from continue_as_new(...))" in said
        assert "retry()" in said
        row = WorkflowInstance.objects.get(pk=handle.id)
        assert (row.history_length, StepResult.objects.count()) == (5, 5), "nothing was changed"

        handle.retry()
        pump.drain()
        assert handle.status == "BLOCKED"

        parts = runtime.current()
        parts.settings = replace(parts.settings, history_limit=50)
        handle.retry()
        pump.finish()
        assert handle.result(timeout=0) == 28


def test_a_run_that_ends_may_end_over_the_limit(transactional_db: None) -> None:
    with Pump(history_warn=1, history_limit=3) as pump:
        handle = counts.start(3)
        pump.finish()
        assert handle.result(timeout=0) == 3
