"""What Celery sees of an attempt: states, signals, results."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import contextmanager
from datetime import datetime, timezone
from typing import Any
from uuid import uuid4

import pytest
from celery import Task, signals
from celery.exceptions import Retry
from celery.worker import state
from kombu.utils.imports import symbol_by_name

from durable_celery import NonRetryable
from durable_celery.celery import seat as seats
from durable_celery.celery.seat import Seat
from durable_celery.celery.transport import CeleryTransport
from durable_celery.conf import Settings
from durable_celery.engine import attempts
from durable_celery.engine.attempts import Ended
from durable_celery.ports import Dispatch
from tests.celery.task_steps import (
    plain,
)

NOW = datetime(2026, 1, 1, tzinfo=timezone.utc)
SIGNALS = ("task_prerun", "task_success", "task_retry", "task_failure", "task_postrun")


class CardDeclined(Exception):
    pass


@contextmanager
def watched():
    """The names of the task signals as they are sent, in order, with what they carry."""
    seen = []
    receivers = []
    for name in SIGNALS:

        def receiver(name=name, **given):
            carried = given.get("result", given.get("exception", given.get("reason")))
            if getattr(given.get("sender"), "name", "").startswith("tests."):
                seen.append((name, carried))

        getattr(signals, name).connect(receiver, weak=False)
        receivers.append((name, receiver))
    try:
        yield seen
    finally:
        for name, receiver in receivers:
            getattr(signals, name).disconnect(receiver)


@pytest.fixture
def lease_id():
    """The lease of this process, which has the seat of a worker for the test."""
    seat = Seat(node="w@host", pool="solo")
    seat.board.lease_id = uuid4()
    seats.take(seat)
    yield seat.board.lease_id
    seats.take(None)


@pytest.fixture
def attempted():
    """The attempts the last message led to: (step id, incarnation, timing)."""
    return []


@pytest.fixture
def run_message(new_app, fake_store, lease_id, attempted, monkeypatch):
    """Publishes one step message and executes it as a worker does, its attempt ending as given; (signals, app)."""

    def run(ended, *, name=plain.name, before=lambda app: None, on_ack=lambda *_: None, **conf):
        calls = []

        def run_attempt(step_id, *, incarnation, guard, timing):
            calls.append((step_id, incarnation, timing))
            if isinstance(ended, BaseException):
                raise ended
            return ended

        monkeypatch.setattr(attempts, "run", run_attempt)
        app = new_app(backend="cache+memory://", **conf)
        app.backend.client.cache.clear()
        before(app)
        transport = CeleryTransport(Settings(), lambda: app)
        transport.dispatch([Dispatch(step_id=42, name=name, close_after=9.0, look_after=3.0)], NOW)
        with watched() as seen:
            execute(app, on_ack)
        attempted[:] = calls
        return [entry for entry in seen if entry[0] not in ("task_prerun", "task_postrun")], app

    return run


def execute(app: Any, on_ack: Callable[..., Any] = lambda *_: None) -> None:
    """Runs the one message in the app's queue."""
    with app.connection_for_read() as connection, connection.SimpleQueue(app.conf.task_default_queue) as queue:
        message = queue.get(timeout=5)
        message.ack()
    task = app.tasks[message.headers["task"]]
    made = symbol_by_name(task.Request)(message, app=app, task=task, on_ack=on_ack, on_reject=on_ack)
    state.task_reserved(made)
    made.execute()
    state.task_ready(made)


def stored_results(app: Any) -> list[str]:
    keys = [key if isinstance(key, str) else key.decode() for key in app.backend.client.cache]
    return [key for key in keys if "celery-task-meta" in key]


def test_a_message_runs_an_attempt_under_the_workers_lease(run_message, lease_id, attempted):
    run_message(Ended(kind="succeeded", value="done"))
    ((step_id, incarnation, timing),) = attempted
    assert step_id == 42
    assert timing == (9.0, 3.0)
    assert (incarnation.lease_id, incarnation.node, incarnation.pool) == (lease_id, "w@host", "solo")


def test_success_is_task_success(run_message):
    seen, _ = run_message(Ended(kind="succeeded", value="done"))
    assert seen == [("task_success", "done")]


def test_an_attempt_that_is_followed_by_another_is_a_retry_and_no_failure(run_message):
    seen, _ = run_message(Ended(kind="retrying", error=CardDeclined("no"), retry_at=NOW))
    ((name, reason),) = seen
    assert name == "task_retry"
    assert isinstance(reason, Retry)
    assert isinstance(reason.exc, CardDeclined)
    assert reason.when == NOW


def test_the_final_failure_is_one_failure_with_the_bodys_own_error(run_message):
    seen, _ = run_message(Ended(kind="failed", error=CardDeclined("no")))
    ((name, error),) = seen
    assert name == "task_failure"
    assert isinstance(error, CardDeclined)


def test_an_error_in_a_non_retryable_is_shown_itself(run_message):
    seen, _ = run_message(Ended(kind="failed", error=NonRetryable(CardDeclined("no"))))
    assert isinstance(seen[0][1], CardDeclined)


@pytest.mark.parametrize("kind", ["refused", "external", "unknown"])
def test_a_message_that_found_nothing_to_do_is_neither_success_nor_failure(run_message, kind):
    seen, _ = run_message(Ended(kind=kind))
    assert seen == []


def test_an_error_of_the_engine_is_no_failure_of_the_step(run_message, said):
    seen, _ = run_message(ConnectionError("the database is away"))
    assert seen == []
    assert any("the tick goes on with it" in line for line in said)


@pytest.mark.parametrize(
    "ended",
    [
        Ended(kind="succeeded", value="done"),
        Ended(kind="retrying", error=CardDeclined("no"), retry_at=NOW),
        Ended(kind="failed", error=CardDeclined("no")),
    ],
    ids=lambda ended: ended.kind,
)
def test_no_result_is_stored_whatever_the_project_stores_for_its_tasks(run_message, ended):
    _, app = run_message(
        ended, task_track_started=True, task_store_errors_even_if_ignored=True, task_ignore_result=False
    )
    assert stored_results(app) == []


def test_results_of_plain_calls_are_stored_as_the_project_says(new_app, fake_store):
    app = new_app(backend="cache+memory://")
    kept = app.tasks[plain.name].delay("kept")
    execute(app)
    assert kept.result == "kept"
    ignoring = new_app(backend="cache+memory://", task_ignore_result=True)
    ignoring.backend.client.cache.clear()
    ignoring.tasks[plain.name].delay("dropped")
    execute(ignoring)
    assert stored_results(ignoring) == []


def test_messages_are_acknowledged_before_they_run_whatever_task_acks_late_says(run_message):
    order_of_things = []

    def prerun(**_):
        order_of_things.append("started")

    signals.task_prerun.connect(prerun, weak=False)
    try:
        run_message(
            Ended(kind="succeeded"),
            on_ack=lambda *_: order_of_things.append("acknowledged"),
            task_acks_late=True,
            task_reject_on_worker_lost=True,
        )
    finally:
        signals.task_prerun.disconnect(prerun)
    assert order_of_things == ["acknowledged", "started"]


def test_a_worker_that_has_no_lease_yet_leaves_the_message_to_the_tick(run_message, attempted):
    seat = seats.taken()
    assert seat is not None
    seat.board.lease_id = None
    seen, _ = run_message(Ended(kind="succeeded"))
    assert (seen, attempted) == ([], [])


def test_hooks_of_the_apps_task_class_see_each_attempt(run_message):
    called = []

    class Base(Task):
        abstract = True

        def before_start(self, task_id, args, kwargs):
            called.append("before_start")

        def on_failure(self, exc, task_id, args, kwargs, einfo):
            called.append(f"on_failure {exc!r}")

    def before(app):
        app.Task = Base

    run_message(Ended(kind="failed", error=CardDeclined("no")), before=before)
    assert called == ["before_start", "on_failure CardDeclined('no')"]
