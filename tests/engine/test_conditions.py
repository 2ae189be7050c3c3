"""Conditions over the real database: what wakes them, and what does not."""

from __future__ import annotations

from typing import Any

import pytest

from django_app.models import StepResult, WorkflowInstance
from durable_celery import Handle, Workflow, spawn, step, wait_until, workflow
from tests.project.testapp.models import Effect
from tests.pump import Pump

pytestmark = pytest.mark.django_db(transaction=True)


@step
def note(what: str) -> str:
    return what


@workflow
def all_done(count: int, seconds: float | None = None) -> Workflow[Any]:
    handles: list[Handle[str]] = []
    for number in range(count):
        handles.append((yield from spawn(note(str(number)))))
    return (yield from wait_until(lambda: all(handle.done for handle in handles), timeout=seconds))


@workflow
def never(seconds: float) -> Workflow[bool]:
    return (yield from wait_until(lambda: False, timeout=seconds))


@workflow
def asks_the_database() -> Workflow[bool]:
    return (yield from wait_until(lambda: Effect.objects.exists()))


def test_outcomes_wake_it(pump: Pump) -> None:
    handle = all_done.start(3)
    pump.finish()
    assert handle.result(timeout=0) is True
    assert {e.position: (e.kind, e.state, e.result) for e in handle.history()}["4"] == ("condition", "SUCCEEDED", True)


def test_its_time_out_comes_from_the_clock_and_nothing_before_it(pump: Pump) -> None:
    handle = never.start(3600)
    pump.drain()
    assert handle.waiting_for == (
        "condition at 1, since 2026-11-29 12:00:00 UTC, until 2026-11-29 13:00:00 UTC"
    )  # fmt: skip
    pump.advance_time(3599)
    assert WorkflowInstance.objects.get(pk=handle.id).turn == 1
    pump.advance_time(1)
    assert handle.result(timeout=0) is False
    assert not StepResult.objects.filter(look_at__isnull=False).exists()


def test_a_query_in_a_condition_is_refused(pump: Pump) -> None:
    handle = asks_the_database.start()
    pump.finish()
    assert handle.status == "BLOCKED"
    assert "move it into a step" in handle.waiting_for


@pytest.mark.parametrize("point", ["turn.before_commit", "turn.in_transaction", "turn.after_commit"])
@pytest.mark.parametrize("nth", [1, 2, 3])
def test_a_kill_anywhere_changes_nothing(pump: Pump, point: str, nth: int) -> None:
    pump.kill_at(point, nth)
    handle = all_done.start(2, 60)
    pump.finish()
    assert handle.result(timeout=0) is True


def test_doubled_and_reordered_messages_change_nothing(pump: Pump) -> None:
    pump.fate = lambda hint: (1.0, 0.0, 2.0)
    pump.choose = lambda ready: len(ready) - 1
    handle, timed = all_done.start(4), never.start(10)
    pump.finish()
    assert [handle.result(timeout=0), timed.result(timeout=0)] == [True, False]


def test_the_page_of_an_instance_shows_it(pump: Pump, admin_client: Any) -> None:
    handle = never.start(3600)
    pump.drain()
    page = admin_client.get(f"/admin/durable_celery/workflowinstance/{handle.id}/change/")
    assert page.status_code == 200
    assert "condition" in page.content.decode()
