"""O-26: code that does not fit its journal blocks the instance, loudly, and a fix lets it go on from where it was."""

from __future__ import annotations

import inspect
import logging
from datetime import datetime, timezone
from typing import Any

import pytest
from django.urls import reverse

from django_app.models import StepResult, WorkflowInstance
from durable_celery import Workflow, sleep, step
from tests.project.testapp.models import Effect
from tests.pump import Pump, release

NAME = "tests.cases.test_o26.choosing"
ran: list[str] = []
outside = {"dice": 0.1, "hour": 9}


@step
def a() -> str:
    ran.append("a")
    return "a"


@step
def b() -> str:
    ran.append("b")
    return "b"


@step
def last(chosen: str) -> str:
    ran.append("last")
    return f"{chosen}, last"


def by_dice() -> bool:
    return outside["dice"] < 0.5


def by_clock() -> bool:
    return datetime(2026, 11, 29, int(outside["hour"]), tzinfo=timezone.utc).hour < 12


def choosing_by_dice() -> Workflow[str]:
    chosen = yield from (a() if by_dice() else b())
    yield from sleep(5)
    return (yield from last(chosen))


def choosing_by_clock() -> Workflow[str]:
    chosen = yield from (a() if by_clock() else b())
    yield from sleep(5)
    return (yield from last(chosen))


def fixed() -> Workflow[str]:
    chosen = yield from a()
    yield from sleep(5)
    return (yield from last(chosen))


def reading_the_database() -> Workflow[str]:
    chosen = yield from (a() if Effect.objects.exists() else b())
    return (yield from last(chosen))


@pytest.fixture(autouse=True)
def _first_choice() -> None:
    ran.clear()
    outside.update(dice=0.1, hour=9)


def flip() -> None:
    outside.update(dice=0.9, hour=15)


@pytest.mark.parametrize("body", [choosing_by_dice, choosing_by_clock])
def test_o26_another_choice_on_replay_blocks_with_what_was_recorded_and_what_is_asked_for(
    pump: Pump, body: Any, caplog: pytest.LogCaptureFixture, admin_client: Any
) -> None:
    line = next(n for n, text in enumerate(inspect.getsourcelines(body)[0]) if "yield from (a()" in text)
    line += inspect.getsourcelines(body)[1]
    handle = release(NAME, body).start()
    pump.drain()
    assert ran == ["a"]
    flip()
    with caplog.at_level(logging.ERROR, logger="durable_celery"):
        pump.advance_time(minutes=5)

    assert handle.status == "BLOCKED"
    told = handle.waiting_for
    for words in (f"step {a.name}", f"step {b.name}", "position 1", "NonDeterminism", "recorded"):
        assert words in told, words
    assert "test_o26.py" in told
    assert str(line) in told
    assert ran == ["a"]
    assert [hint.name for hint in pump.sent if hint.step is not None] == [a.name]
    errors = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert any(handle.id in record.getMessage() and a.name in record.getMessage() for record in errors)
    assert_shown_in_the_admin(admin_client, handle)

    release(NAME, fixed)
    pump.advance_time(minutes=1)
    assert handle.result(timeout=0) == "a, last"
    assert ran == ["a", "last"]
    assert [entry.position for entry in handle.history()] == ["1", "2", "3"]


def test_o26_nothing_but_new_code_lets_it_go_on(pump: Pump) -> None:
    handle = release(NAME, choosing_by_dice).start()
    pump.drain()
    flip()
    pump.advance_time(minutes=5)
    outside.update(dice=0.1)
    revision = WorkflowInstance.objects.get(pk=handle.id).revision
    pump.advance_time(minutes=5)
    assert handle.status == "BLOCKED"
    assert WorkflowInstance.objects.get(pk=handle.id).revision == revision


def test_o26_new_code_that_does_not_fit_either_blocks_again_and_is_not_forgotten(pump: Pump) -> None:
    def wrong_again() -> Workflow[str]:
        chosen = yield from b()
        return (yield from last(chosen))

    handle = release(NAME, choosing_by_dice).start()
    pump.drain()
    flip()
    pump.advance_time(minutes=1)
    release(NAME, wrong_again)
    pump.advance_time(minutes=1)
    assert handle.status == "BLOCKED"
    assert ran == ["a"]
    release(NAME, fixed)
    pump.advance_time(minutes=1)
    assert handle.result(timeout=0) == "a, last"


def test_o26_a_database_query_in_a_body_is_refused(pump: Pump) -> None:
    handle = release(NAME, reading_the_database).start()
    pump.finish()
    assert handle.status == "BLOCKED"
    assert "move it into a step" in handle.waiting_for
    assert ran == []
    assert not StepResult.objects.filter(instance_id=handle.id).exists()


def assert_shown_in_the_admin(client: Any, handle: Any) -> None:
    listed = client.get(reverse("admin:durable_celery_workflowinstance_changelist"))
    assert listed.status_code == 200
    text = listed.content.decode()
    assert handle.id in text
    assert "BLOCKED" in text
    assert "NonDeterminism" in text
