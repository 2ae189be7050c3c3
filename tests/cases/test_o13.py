"""O-13: a workflow that cannot be recovered stops nobody else.

One instance whose row cannot be read, and one whose workflow this process does not know, stand between two good ones;
the tick goes past them, says what is wrong, and does not come back to them at once.
"""

from __future__ import annotations

import logging
from typing import Any

import pytest

from django_app.models import StepResult, WorkflowInstance
from durable_celery import RetryPolicy, Workflow, current_step, step, workflow
from durable_celery.registry import registry
from tests.pump import Pump

ran: list[str] = []


@step(retry=RetryPolicy(initial_interval=60, jitter=False))
def greet(who: str, failures: int = 0) -> str:
    ran.append(who)
    if current_step().attempt <= failures:
        raise RuntimeError("not yet")
    return who


@workflow
def greeting(who: str) -> Workflow[str]:
    return (yield from greet(who))


@workflow
def late_greeting(who: str) -> Workflow[str]:
    return (yield from greet(who, failures=1))


@workflow(name="tests.cases.test_o13.gone")
def gone(who: str) -> Workflow[str]:
    return (yield from greet(who))


def start_three_unpublished(pump: Pump, middle: Any) -> tuple[Any, Any, Any]:
    ran.clear()
    pump.down = True
    handles = greeting.start("first"), middle.start("middle"), greeting.start("third")
    pump.down = False
    assert [handle.status for handle in handles] == ["PENDING"] * 3
    return handles


def test_o13_a_row_with_corrupt_data_is_blocked_with_the_reason_and_its_neighbours_run(
    pump: Pump, caplog: pytest.LogCaptureFixture
) -> None:
    first, middle, third = start_three_unpublished(pump, greeting)
    WorkflowInstance.objects.filter(pk=middle.id).update(args="[[nonsense")
    with caplog.at_level(logging.ERROR, logger="durable_celery"):
        pump.finish()
    assert (first.result(timeout=0), third.result(timeout=0)) == ("first", "third")
    assert middle.status == "BLOCKED"
    assert "the arguments cannot be read" in middle.waiting_for
    assert middle.waiting_for in caplog.text
    assert sorted(ran) == ["first", "third"]


def test_o13_a_corrupt_result_blocks_its_instance_with_the_reason(pump: Pump) -> None:
    first, middle, third = start_three_unpublished(pump, greeting)
    for handle in (first, middle, third):
        pump.kill_at("record.after")
        pump.tick()
        pump.advance(handle._row().id)
        pump.drain()
    StepResult.objects.filter(instance_id=middle.id).update(result='{"$":"nonsense"')
    pump.finish()
    assert (first.result(timeout=0), third.result(timeout=0)) == ("first", "third")
    assert middle.status == "BLOCKED"
    assert "blocked:" in middle.waiting_for


def test_o13_an_unknown_workflow_is_left_for_a_worker_that_knows_it(
    pump: Pump, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, middle, third = start_three_unpublished(pump, gone)
    with monkeypatch.context() as here:
        here.delitem(registry._workflows, (gone.name, 1))
        with caplog.at_level(logging.ERROR, logger="durable_celery"):
            pump.advance_time(seconds=10)
        assert (first.result(timeout=0), third.result(timeout=0)) == ("first", "third")
        assert middle.status == "PENDING"
        assert "a worker that knows workflow" in middle.waiting_for
        assert gone.name in middle.waiting_for
        assert caplog.text.count(gone.name) >= 1
        assert not StepResult.objects.filter(instance_id=middle.id).exists()
        assert sorted(ran) == ["first", "third"]
        assert hints_for(pump, middle) == 1
        pump.advance_time(seconds=10)
        assert hints_for(pump, middle) == 1
        pump.advance_time(minutes=1)
        assert 1 < hints_for(pump, middle) <= 4
    pump.finish()
    assert middle.result(timeout=0) == "middle"
    assert StepResult.objects.get(instance_id=middle.id).attempt == 1


def test_o13_a_blocked_row_is_not_tried_again_at_once(pump: Pump) -> None:
    _, middle, _ = start_three_unpublished(pump, greeting)
    WorkflowInstance.objects.filter(pk=middle.id).update(args="[[nonsense")
    pump.finish()
    revision = WorkflowInstance.objects.get(pk=middle.id).revision
    before = hints_for(pump, middle)
    for _ in range(20):
        pump.advance_time(seconds=1)
    assert hints_for(pump, middle) == before
    assert WorkflowInstance.objects.get(pk=middle.id).revision == revision


def test_o13_a_step_row_the_tick_cannot_judge_is_stepped_over_and_not_tried_at_every_tick(
    pump: Pump, caplog: pytest.LogCaptureFixture
) -> None:
    ran.clear()
    handles = [late_greeting.start(who) for who in ("first", "middle", "third")]
    pump.drain()
    sick = StepResult.objects.get(instance_id=handles[1].id)
    StepResult.objects.filter(pk=sick.pk).update(options="{nonsense", state="RUNNING")
    with caplog.at_level(logging.ERROR, logger="durable_celery"):
        pump.advance_time(seconds=61)
    assert [handles[n].status for n in (0, 2)] == ["COMPLETED", "COMPLETED"]
    assert handles[1].status == "WAITING"
    assert "whose options cannot be read: '{nonsense'" in handles[1].waiting_for
    told = caplog.text.count("the tick could not handle")
    assert told >= 1
    assert str(sick.instance_id) in caplog.text
    caplog.clear()
    with caplog.at_level(logging.ERROR, logger="durable_celery"):
        for _ in range(120):
            pump.now += pump.settings.tick
            pump.tick()
    assert 1 <= caplog.text.count("the tick could not handle") <= 6


def hints_for(pump: Pump, handle: Any) -> int:
    return sum(hint.instance is not None and str(hint.instance) == handle.id for hint in pump.sent)
