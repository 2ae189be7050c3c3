"""Existing tasks and signatures as commands of a workflow."""

from __future__ import annotations

from typing import Any

import pytest
from celery import chord, group
from celery.canvas import _chain
from django.db.models import Q

from django_app.models import StepResult
from durable_celery import NotInWorkflow, Workflow, canvas, gather, run, step, workflow
from durable_celery.celery.current_app import current_app
from tests.celery import existing as t
from tests.celery.existing_parts import seen
from tests.pump import Pump


@step
def double(number: int) -> int:
    return number * 2


@workflow
def uses_them(number: int) -> Workflow[list[Any]]:
    plain_yield = yield t.add.s(number, 1)
    typed = yield from canvas(t.add.s(number, 2) | t.add.s(3))
    both = yield from gather(double(number), canvas(group(t.add.s(1, 1), t.add.s(2, 2))))
    own = yield double.s(number)
    mixed = yield double.s(number) | t.add.s(1) | double.s()
    return [plain_yield, typed, both, own, mixed]


def test_signatures_stand_where_commands_do(pump: Pump) -> None:
    handle = uses_them.start(5)
    pump.finish()
    assert handle.result(timeout=0) == [6, 10, (10, [2, 4]), 10, 22]
    rows = {one.position: (one.kind, one.name) for one in handle.history()}
    assert rows == {
        "1": ("step", t.add.name),
        "2": ("chain", ""),
        "2.0": ("step", t.add.name),
        "2.1": ("step", t.add.name),
        "3": ("gather", ""),
        "3.0": ("step", double.name),
        "3.1": ("gather", ""),
        "3.1.0": ("step", t.add.name),
        "3.1.1": ("step", t.add.name),
        "4": ("step", double.name),
        "5": ("chain", ""),
        "5.0": ("step", double.name),
        "5.1": ("step", t.add.name),
        "5.2": ("step", double.name),
    }


def test_a_wrong_call_blocks_where_it_is_yielded(pump: Pump) -> None:
    @workflow(name="tests.existing.wrong_call")
    def wrong_call() -> Workflow[Any]:
        return (yield t.add.s(1))

    handle = wrong_call.start()
    pump.finish()
    assert handle.status == "BLOCKED"
    assert "TypeError" in handle.waiting_for


def test_canvas_outside_a_workflow_names_what_to_use() -> None:
    with pytest.raises(NotInWorkflow, match=r"durable_celery\.run"):
        _ = canvas(t.add.s(1, 2))


def test_another_number_of_members_does_not_fit_the_journal(pump: Pump) -> None:
    members = [t.add.s(1, 2), t.add.s(3)]

    @workflow(name="tests.existing.growing")
    def growing() -> Workflow[Any]:
        value = yield _chain(*members)
        yield t.add.s(1, 1).set(countdown=1000)
        return value

    handle = growing.start()
    pump.drain()
    members.append(t.add.s(4))
    pump.advance_time(2000)
    assert handle.status == "BLOCKED"
    assert "recorded is chain of 2 members" in handle.waiting_for


def test_lost_doubled_and_reordered_messages_change_nothing(pump: Pump) -> None:
    seen.clear()
    pump.fate = lambda hint: () if hint.number % 3 == 0 else (0.0, 7.0)
    pump.choose = lambda ready: len(ready) - 1
    handle = run(chord([t.add.s(1, 1) | t.add.s(1), t.add.s(2, 2)], t.total.s() | t.add.s(1)))
    pump.finish()
    assert handle.result(timeout=0) == 8
    assert len(seen) == 5


@pytest.mark.parametrize("proven", [True, False], ids=["proven", "by its lease"])
def test_a_task_whose_process_dies_is_run_again_and_no_retry_is_counted(proven: bool, pump: Pump) -> None:
    seen.clear()
    pump.kill_at("record.before", proven=proven)
    handle = run(t.look.s(1))
    pump.finish()
    assert handle.result(timeout=0)["retries"] == 0
    assert StepResult.objects.get().attempt == 2


def test_a_retry_in_another_queue_goes_there_and_keeps_its_headers(pump: Pump) -> None:
    handle = run(t.moves.s().set(queue="quick", headers={"tenant": "a"}))
    pump.finish()
    assert [hint.queue for hint in pump.sent if hint.step] == ["quick", "slow"]
    assert handle.result(timeout=0) == {"tenant": "a"}


@workflow(name="tests.existing.taken_back")
def taken_back() -> Workflow[None]:
    yield canvas(t.add.s(1, 2)).compensate_with(canvas(t.echo.s("taken back")))
    yield t.fail.s()


def test_an_existing_task_can_be_compensated_and_compensate(pump: Pump) -> None:
    seen.clear()
    handle = taken_back.start()
    pump.finish()
    assert handle.status == "FAILED"
    assert seen == [("ran", "add", 1, 2), ("ran", "fail"), ("ran", "echo")]


def test_run_takes_the_options_of_a_start(pump: Pump) -> None:
    first, second = run(t.add.s(1, 2), key="once"), run(t.add.s(1, 2), key="once")
    pump.finish()
    assert first.id == second.id
    assert first.result(timeout=0) == 3


def test_what_a_row_waits_for_counts_by_the_tasks_own_rules(pump: Pump) -> None:
    handle = run(t.backs_off.s())
    pump.drain()
    assert f"step {t.backs_off.name} at 1, attempt 1 is over after Unreachable: away" in handle.waiting_for


def test_the_row_says_that_it_is_an_existing_task_and_how_it_is_routed(pump: Pump) -> None:
    run(group(t.with_options.s(), t.add.map([]), t.add.s(1, 2).set(queue="vip", priority=9)))
    pump.drain()
    names = {t.with_options.name, "celery.map", t.add.name}
    rows = StepResult.objects.filter(Q(name__in=names))
    sent = {hint.name: hint for hint in pump.sent if hint.step}
    assert {row.name for row in rows} == names == set(sent)
    assert sent[t.add.name].queue == "vip"
    assert sent[t.with_options.name].after == (40, None)
    assert current_app().tasks[t.with_options.name].queue == "own"
