"""O-47: one table of scenarios, run by the testing kit, under `task_always_eager` and by a real worker, ends the same.

Values are copied by encoding, errors are data, a day's sleep blocks nobody, and nothing runs before the commit.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from typing import Any

import pytest
from django.db import transaction
from django.utils import timezone

from django_app.models import StepResult
from durable_celery import WorkflowHandle
from durable_celery.celery.current_app import current_app
from durable_celery.errors import DurableError
from durable_celery.outcomes import HistoryEntry
from durable_celery.testing import Harness
from tests.processes import Worker, eventually
from tests.project.testapp import case_modes as modes

DAY = timedelta(days=1).total_seconds()
LOCKED = "tests.project.testapp.case_modes.Locked"
Row = tuple[str, str, str, Any, Any]  # position, name, state, result, error

# Workflow, arguments, status, result or a part of the error, and the rows of the journal
SCENARIOS: dict[str, tuple[Any, Sequence[Any], str, Any, list[Row]]] = {
    "a set": (
        modes.passes_a_set, [{3, 1, 2}], "COMPLETED", ["set", "set", "[1, 2, 3]"],
        [("1", "modes.echo", "SUCCEEDED", {1, 2, 3}, None)],
    ),
    "a mutated list": (
        modes.mutation, [[1]], "COMPLETED", ([1], [1, 99, 100]),
        [("1", "modes.extend", "SUCCEEDED", [1, 99], None), ("2", "modes.echo", "SUCCEEDED", [1], None)],
    ),
    "an error that does not pickle": (
        modes.error, [], "FAILED", "Locked: ('for good', <unlocked _thread.lock object",
        [
            ("1", "modes.fail", "FAILED", None, LOCKED),
            ("2", "modes.echo", "SUCCEEDED", [LOCKED, 1, True], None),
            ("3", "modes.echo", "SUCCEEDED", "kept", None),
            ("4", "modes.fail", "FAILED", None, LOCKED),
            ("3~", "modes.undo", "SUCCEEDED", None, None),
        ],
    ),
    "a result that cannot be kept": (
        modes.returns_an_object, [], "FAILED", "NotSerializable",
        [("1", "modes.lost", "FAILED", None, "durable_celery.errors.NotSerializable")],
    ),
    "attempts": (
        modes.retries, [], "COMPLETED", (2, 1),
        [
            ("1", "", "SUCCEEDED", None, None),
            ("1.0", "modes.flaky", "SUCCEEDED", 2, None),
            ("1.1", "modes.flaky", "SUCCEEDED", 1, None),
        ],
    ),
    "a day's sleep": (
        modes.sleeps, [DAY], "COMPLETED", True,
        [("1", "", "SUCCEEDED", None, None), ("2", "modes.echo", "SUCCEEDED", "slept", None)],
    ),
    "a signal and an existing task": (
        modes.asks, [], "COMPLETED", 42,
        [("1", "go", "SUCCEEDED", 21, None), ("2", "modes.double", "SUCCEEDED", 42, None)],
    ),
    "a bug": (
        modes.bug, [], "BLOCKED", "ValueError: a bug",
        [("1", "modes.echo", "SUCCEEDED", 1, None)],
    ),
}  # fmt: skip


@pytest.fixture
def eager(transactional_db: None) -> Iterator[None]:
    conf = current_app().conf
    conf.task_always_eager = True
    yield
    conf.task_always_eager = False


def outcome(handle: WorkflowHandle[Any]) -> tuple[str, Any]:
    """The status, and the result or the error in words."""
    try:
        return handle.status, handle.result()
    except DurableError as error:
        return handle.status, str(error)


def check(handle: WorkflowHandle[Any], name: str) -> None:
    _, _, status, ends_with, rows = SCENARIOS[name]
    found, value = outcome(handle)
    assert found == status, handle.waiting_for
    assert (ends_with in value) if status != "COMPLETED" else (value == ends_with)
    assert [row_of(entry) for entry in handle.history()] == rows


def row_of(entry: HistoryEntry) -> Row:
    result = entry.result if entry.kind != "gather" else None
    return (entry.position, entry.name, entry.state, result, entry.error.type if entry.error else None)


# -- the table, in each mode -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SCENARIOS)
@pytest.mark.parametrize("database", ["db", "transactional_db"])
def test_o47_the_kit(request: pytest.FixtureRequest, name: str, database: str) -> None:
    request.getfixturevalue(database)
    durable: Harness = request.getfixturevalue("durable")
    workflow, args, *_ = SCENARIOS[name]
    run = durable.start(workflow, *args)
    if workflow is modes.asks:
        durable.signal(run, modes.go, 21)
    durable.finish(run)
    check(run.handle, name)


@pytest.mark.parametrize("name", SCENARIOS)
def test_o47_task_always_eager(eager: None, name: str) -> None:
    workflow, args, *_ = SCENARIOS[name]
    began = time.monotonic()
    handle = workflow.start(*args)
    if workflow is modes.asks:
        assert (handle.status, handle.history()[0].state) == ("WAITING", "SCHEDULED")
        modes.go.send(handle, 21)
    assert time.monotonic() - began < DAY / 1000
    check(handle, name)


@pytest.mark.prefork
def test_o47_a_worker(transactional_db: None, start_worker: Callable[..., Worker]) -> None:
    start_worker()
    handles = {name: workflow.start(*args) for name, (workflow, args, *_) in SCENARIOS.items()}
    modes.go.send(handles["a signal and an existing task"], 21)
    end_the_sleep(handles["a day's sleep"])
    for name, handle in handles.items():
        status = SCENARIOS[name][2]
        eventually(lambda handle=handle, status=status: handle.status == status, f"{name} that is {status}", seconds=60)
        if name == "a day's sleep":
            # Only its row was moved: the body's own clock has not passed the day.
            assert (handle.status, handle.result(timeout=5)) == ("COMPLETED", False)
            assert [row_of(entry) for entry in handle.history()] == SCENARIOS[name][4]
        else:
            check(handle, name)


def end_the_sleep(handle: WorkflowHandle[Any]) -> None:
    timer = StepResult.objects.filter(instance_id=handle.run_id, kind="timer")
    eventually(timer.exists, "a sleep that has begun")
    timer.update(due_at=timezone.now(), look_at=timezone.now())


# -- what is said of each clause ---------------------------------------------------------------------------------------


def test_o47_eager_runs_nothing_before_the_commit(eager: None) -> None:
    with transaction.atomic():
        handle = modes.passes_a_set.start({1})
        assert (handle.status, handle.history()) == ("PENDING", [])
    assert handle.status == "COMPLETED"
    with transaction.atomic():
        modes.passes_a_set.using(key="gone").start({1})
        transaction.set_rollback(True)
    assert not StepResult.objects.exclude(instance_id=handle.run_id).exists()


def test_o47_eager_signals_inside_a_transaction_wait_for_it(eager: None) -> None:
    handle = modes.asks.start()
    with transaction.atomic():
        modes.go.send(handle, 1)
        assert handle.status == "WAITING"
    assert handle.result(timeout=0) == 2


def test_o47_eager_leaves_a_wait_with_a_time_out_open(eager: None) -> None:
    handle = modes.asks.start()
    assert handle.status == "WAITING"
    assert "signal 'go'" in handle.waiting_for


def test_o47_eager_tasks_of_workflows_start_them(eager: None) -> None:
    current_app().tasks["modes.mutation"].delay([1])
    assert modes.passes_a_set.using(start_delay=3600).start({1}).status == "COMPLETED"
    assert StepResult.objects.filter(name="modes.echo", state="SUCCEEDED").count() == 2


def test_o47_eager_needs_no_broker_and_no_worker_to_cancel(eager: None) -> None:
    handle = modes.asks.start()
    assert handle.cancel("no more") == "requested"
    assert handle.status == "CANCELLED"
