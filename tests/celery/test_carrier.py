"""The message that carries an existing task: what goes to the broker, and what is seen of it in a real worker."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
from celery import chain, group, shared_task

from durable_celery import run
from durable_celery.celery.carrier import Tracer
from durable_celery.celery.transport import CeleryTransport
from durable_celery.conf import Settings
from durable_celery.engine.attempts import Ended
from durable_celery.errors import BadValue
from durable_celery.ports import Dispatch, TaskEnd
from tests.celery import prefork_tasks as t
from tests.celery.sending import messages_in

NOW = datetime(2026, 1, 1, tzinfo=timezone.utc)


@shared_task(name="tests.carrier.mine", priority=7)
def mine() -> None:
    """Never run here."""


@shared_task(name="tests.carrier.at_home", queue="home")
def at_home() -> None:
    """Never run here."""


def dispatch(app: Any, name: str, **changes: Any) -> None:
    one = Dispatch(**{"step_id": 42, "name": name, "task": name, "close_after": 30.0, **changes})
    assert CeleryTransport(Settings(), lambda: app).dispatch([one], NOW) == 1


def test_a_message_is_ours_under_the_name_of_the_task(new_app: Any) -> None:
    app = new_app()
    dispatch(app, mine.name, priority=7)
    (message,) = messages_in(app)
    assert message.headers["task"] == "durable_celery.run_task"
    assert message.headers["shadow"] == mine.name
    assert message.headers["durable"]["step"] == 42
    assert message.headers["durable"]["task"] == mine.name
    assert message.properties["priority"] == 7
    assert message.payload[:2] == [[], {}]


def test_a_message_goes_where_one_of_the_tasks_own_would_go(new_app: Any) -> None:
    app = new_app(task_routes={"tests.carrier.*": {"queue": "routed"}})
    dispatch(app, mine.name)
    dispatch(app, mine.name, queue="asked")
    dispatch(app, at_home.name)
    dispatch(app, "celery.map", task=mine.name)
    assert [one.headers["shadow"] for one in messages_in(app, "routed")] == [mine.name, "celery.map"]
    assert len(messages_in(app, "asked")) == len(messages_in(app, "home")) == 1


def test_a_task_without_a_hard_limit_has_a_message_without_one(new_app: Any) -> None:
    app = new_app()
    dispatch(app, mine.name, close_after=None)
    dispatch(app, mine.name)
    free, bound = messages_in(app)
    assert free.headers["timelimit"] == [None, None]
    assert bound.headers["timelimit"][0] > 60
    assert not new_app(task_time_limit=5).tasks["durable_celery.run_task"].time_limit


def test_the_carrier_runs_nothing_when_called_by_hand(new_app: Any) -> None:
    with pytest.raises(BadValue, match="yield task"):
        new_app().tasks["durable_celery.run_task"].apply(throw=True)


class Carrier:
    """Stands for the task on an app."""

    def __init__(self, app: Any, tracer: Tracer) -> None:
        self.app = app
        self.trace = tracer.__get__(self)


def test_what_celery_sees_is_the_end_of_the_task_itself(new_app: Any) -> None:
    traced = object()
    carrier = Carrier(
        new_app(), Tracer(lambda step, header: Ended(kind="succeeded", task=TaskEnd(state="SUCCESS", traced=traced)))
    )
    assert carrier.trace("id", (), {}, {"durable": {"step": 42, "task": mine.name}}) is traced


def test_an_attempt_that_was_not_taken_is_ignored(new_app: Any) -> None:
    end = TaskEnd(state="SUCCESS", traced=object())
    for outcome in (Ended(kind="refused"), Ended(kind="refused", task=end)):
        carrier = Carrier(new_app(), Tracer(lambda step, header, outcome=outcome: outcome))  # type: ignore[misc]
        assert carrier.trace("id", (), {}, {"durable": {"step": 42, "task": mine.name}}).info.state == "IGNORED"


def test_an_error_of_the_engine_is_no_failure_of_the_task(new_app: Any, caplog: pytest.LogCaptureFixture) -> None:
    def attempt(step: int, header: Any) -> Ended:
        raise ConnectionError("the database is away")

    carrier = Carrier(new_app(), Tracer(attempt))
    assert carrier.trace("id", (), {}, {"durable": {"step": 42, "task": mine.name}}).info.state == "IGNORED"
    assert "the tick goes on with it" in caplog.text


# -- in a worker -------------------------------------------------------------------------------------------------------


def settings(**env: str) -> dict[str, str]:
    return {"TEST_CELERY": json.dumps({"imports": ["tests.celery.prefork_tasks"]}), **env}


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "noted")


@pytest.mark.prefork
@pytest.mark.django_db(transaction=True)
def test_signals_and_log_lines_are_the_tasks_and_come_once(
    start_worker: Callable[..., Any], path: str, tmp_path: Path
) -> None:
    told = str(tmp_path / "signals")
    worker = start_worker(concurrency=1, env=settings(TEST_SIGNALS=told))
    handle = run(t.persistent.s(path, 2))
    assert handle.result(timeout=60) == 2
    assert t.noted(path) == ["ran"] * 3
    name = t.persistent.name
    mine = [one for one in t.noted(told) if not one.split(":")[1].startswith("durable_celery.advance")]
    assert mine == [
        f"task_prerun:{name}:0", f"task_retry:{name}:0", f"task_postrun:{name}:0",
        f"task_prerun:{name}:1", f"task_retry:{name}:1", f"task_postrun:{name}:1",
        f"task_prerun:{name}:2", f"task_success:{name}:2", f"task_postrun:{name}:2",
    ]  # fmt: skip
    lines = [line for line in worker.text().splitlines() if name in line]
    assert sum(f"Task {name}[" in line and "received" in line for line in lines) >= 3
    assert sum("retry: Retry in" in line for line in lines) == 2
    assert sum("succeeded in" in line for line in lines) == 1
    assert "Task durable_celery.run_task[" not in worker.text()
    (entry,) = handle.history()
    assert (entry.state, entry.attempts) == ("SUCCEEDED", 3)


@pytest.mark.prefork
@pytest.mark.django_db(transaction=True)
def test_a_hard_time_limit_kills_the_process_and_ends_the_step(start_worker: Callable[..., Any], path: str) -> None:
    worker = start_worker(concurrency=1, env=settings())
    before = worker.children()
    handle = run(t.endless.s(path))
    with pytest.raises(Exception, match="TimeoutError"):
        handle.result(timeout=60)
    assert t.noted(path) == ["ran"]
    (entry,) = handle.history()
    assert entry.error is not None
    assert entry.error.timed_out
    assert run(t.routed.s(path)).result(timeout=60) == "there"
    assert not set(t.processes(path)[1:]) & set(before)


@pytest.mark.prefork
@pytest.mark.django_db(transaction=True)
def test_a_soft_limit_alone_kills_nobody(start_worker: Callable[..., Any], path: str) -> None:
    start_worker(concurrency=1, env=settings())
    assert run(t.tidy.s(path)).result(timeout=60) == "tidied up"
    assert t.noted(path) == ["ran", "tidied"]
    assert len(set(t.processes(path))) == 1


@pytest.mark.kill
@pytest.mark.django_db(transaction=True)
def test_a_task_whose_process_dies_runs_again(start_worker: Callable[..., Any], path: str) -> None:
    start_worker(concurrency=1, env=settings())
    assert run(chain(t.mortal.s(path), group(t.routed.si(path), t.routed.si(path)))).result(timeout=60) == ["there"] * 2
    assert t.noted(path) == ["ran"] * 4
