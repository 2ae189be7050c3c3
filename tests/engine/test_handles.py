"""Work beside the body over the real database: joined, given up, left behind, retried."""

from __future__ import annotations

from typing import Any

import pytest

from durable_celery import (
    CancelRequested,
    ChildFailed,
    RetryPolicy,
    StepFailed,
    Workflow,
    WorkflowCancelled,
    WorkflowFailed,
    current_step,
    get_handle,
    sleep,
    spawn,
    step,
    workflow,
)
from tests.pump import Pump

pytestmark = pytest.mark.django_db(transaction=True)

ran: list[str] = []
asked: list[bool] = []
hooks: dict[str, Any] = {}


@pytest.fixture(autouse=True)
def clean() -> None:
    ran.clear()
    asked.clear()
    hooks.clear()


@step(retry=RetryPolicy(maximum_attempts=2, initial_interval=5, jitter=False))
def note(what: str) -> str:
    ran.append(what)
    hook = hooks.pop(what, None)
    if hook is not None:
        hook()
    current_step().heartbeat()
    asked.append(current_step().cancel_requested)
    return what


def fail() -> None:
    raise ValueError("no luck")


@workflow
def beside() -> Workflow[Any]:
    handle = yield from spawn(note("bg"))
    fg = yield from note("fg")
    return [fg, (yield from handle)]


@workflow
def gives_up() -> Workflow[Any]:
    handle = yield from spawn(note("long"))
    yield from sleep(2)
    stopped = yield from handle.cancel()
    try:
        yield from handle
    except StepFailed as error:
        return [stopped, error.cancelled]


@workflow
def cleans_up() -> Workflow[Any]:
    handle = yield from spawn(note("bg"))
    try:
        yield from sleep(1000)
    except CancelRequested:
        yield from note(f"after {(yield from handle)}")
        raise


@workflow
def ends_first() -> Workflow[str]:
    yield from spawn(sleep(100))
    yield from spawn(note("bg"))
    yield from sleep(1)
    return (yield from note("fg"))


def states(handle: Any) -> dict[str, str]:
    return {entry.position: entry.state for entry in handle.history()}


def test_a_spawned_step_runs_beside_the_body(pump: Pump) -> None:
    handle = beside.start()
    pump.finish()

    assert handle.result(timeout=0) == ["fg", "bg"]
    assert states(handle) == {"1": "SUCCEEDED", "1.0": "SUCCEEDED", "2": "SUCCEEDED"}
    assert sorted(ran) == ["bg", "fg"]


def test_a_cancelled_handle_tells_its_running_step(pump: Pump) -> None:
    hooks["long"] = lambda: pump.advance_time(5)
    handle = gives_up.start()
    pump.finish()

    assert handle.result(timeout=0) == [True, True]
    assert asked == [True]
    assert states(handle) == {"1": "CANCELLED", "1.0": "SUCCEEDED", "2": "SUCCEEDED"}


def test_a_cancelled_handle_stops_the_next_attempt(pump: Pump) -> None:
    hooks["long"] = fail
    handle = gives_up.start()
    pump.finish()

    assert handle.result(timeout=0) == [True, True]
    assert ran == ["long"]
    assert states(handle)["1.0"] == "CANCELLED"


def test_spawned_work_goes_on_while_a_cancelled_body_cleans_up(pump: Pump) -> None:
    hooks["bg"] = fail  # the second attempt is made after the cancel
    handle = cleans_up.start()
    pump.drain()
    handle.cancel("enough")
    pump.finish()

    with pytest.raises(WorkflowCancelled):
        handle.result(timeout=0)
    assert ran == ["bg", "bg", "after bg"]
    assert states(handle) == {"1": "SUCCEEDED", "1.0": "SUCCEEDED", "2": "CANCELLED", "4": "SUCCEEDED"}


def test_the_end_of_the_body_gives_up_the_rest(pump: Pump) -> None:
    hooks["bg"] = fail
    handle = ends_first.start()
    pump.finish()

    assert handle.result(timeout=0) == "fg"
    assert ran == ["bg", "fg"]
    assert {p: s for p, s in states(handle).items() if p < "3"} == dict.fromkeys(("1", "1.0", "2", "2.0"), "CANCELLED")


def test_what_is_spawned_is_told_in_waiting_for_and_in_the_admin(pump: Pump, admin_client: Any) -> None:
    hooks["bg"] = fail
    handle = cleans_up.start()
    pump.drain()
    told = handle.waiting_for
    assert f"step {note.name} at 1.0, attempt 1 of 2 is over after ValueError" in told
    assert "sleep at 2" in told
    assert "spawn" not in told
    page = admin_client.get(f"/admin/durable_celery/workflowinstance/{handle.id}/change/")
    assert page.status_code == 200
    assert "spawn" in page.content.decode()


def test_retry_takes_a_failed_join_back(pump: Pump) -> None:
    broken = {"is": True}

    @step(name="tests.handles.breaks", retry=None)
    def breaks() -> str:
        if broken["is"]:
            raise ValueError("broken")
        return "mended"

    @workflow(name="tests.handles.joins")
    def joins() -> Workflow[str]:
        handle = yield from spawn(breaks())
        yield from spawn(sleep(500))
        return (yield from handle)

    handle = joins.start()
    pump.drain()
    with pytest.raises(WorkflowFailed):
        handle.result(timeout=0)
    assert states(handle) == {"1": "FAILED", "1.0": "FAILED", "2": "CANCELLED", "2.0": "CANCELLED"}
    broken["is"] = False
    handle.retry()
    assert set(states(handle).values()) == {"SCHEDULED"}
    pump.finish()

    assert handle.result(timeout=0) == "mended"
    assert states(handle) == {"1": "SUCCEEDED", "1.0": "SUCCEEDED", "2": "CANCELLED", "2.0": "CANCELLED"}


@pytest.mark.parametrize("point", ["turn.before_commit", "turn.after_commit", "claim.after_commit", "record.before"])
@pytest.mark.parametrize("nth", [1, 2])
def test_a_kill_anywhere_changes_nothing(pump: Pump, point: str, nth: int) -> None:
    pump.kill_at(point, nth)
    handle = beside.start()
    pump.finish()

    assert handle.result(timeout=0) == ["fg", "bg"]
    assert states(handle) == {"1": "SUCCEEDED", "1.0": "SUCCEEDED", "2": "SUCCEEDED"}


def test_a_child_given_up_by_its_handle_is_told_and_the_join_says_so(pump: Pump) -> None:
    @workflow(name="tests.handles.child")
    def child() -> Workflow[str]:
        yield from sleep(1000)
        return "late"

    @workflow(name="tests.handles.parent")
    def parent() -> Workflow[Any]:
        handle = yield from spawn(child())
        yield from sleep(5)
        yield from handle.cancel()
        try:
            yield from handle
        except ChildFailed as error:
            return [error.cancelled, error.child_status, error.child_id]

    handle = parent.start()
    pump.finish()
    cancelled, status, child_id = handle.result(timeout=0)
    assert [cancelled, status] == [True, "CANCELLED"]
    assert get_handle(child_id).status == "CANCELLED"
