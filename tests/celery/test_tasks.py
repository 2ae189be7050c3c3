"""The tasks: which there are, plain calls, and the engine's own."""

from __future__ import annotations

from uuid import UUID, uuid4

import pytest
from celery import Task
from celery.exceptions import Retry

from durable_celery import current_step, purging, step, sweeps, workflow
from durable_celery.celery import tasks
from durable_celery.engine import turns
from tests.celery.task_steps import (
    plain,
)


@step(name="tests.celery.charge", queue="payments", priority=3, rate_limit="10/m")
def charge(order_id, amount=1):
    """Takes the money."""
    step_now = current_step()
    return [order_id, amount, step_now.idempotency_key, step_now.attempt, step_now.token]


@step(name="tests.celery.asynchronous")
async def asynchronous(value):
    return value


@workflow(name="tests.celery.order", queue="orders")
def order(order_id):
    yield from plain(order_id)


# -- which tasks there are ---------------------------------------------------------------------------------------------


def test_every_step_and_workflow_is_a_task_of_its_name_on_every_app(new_app):
    for app in (new_app(), new_app()):
        names = {
            charge.name,
            plain.name,
            order.name,
            "durable_celery.advance",
            "durable_celery.tick",
            "durable_celery.purge",
        }
        assert names <= set(app.tasks)
        assert app.tasks[charge.name].app is app


def test_a_step_defined_after_the_app_was_finalized_is_a_task_too(new_app):
    app = new_app()
    app.finalize()
    name = f"tests.celery.late_{uuid4().hex}"

    @step(name=name)
    def late():
        return 1

    assert name in app.tasks


def test_tasks_are_built_on_the_apps_own_task_class(new_app):
    class Base(Task):
        abstract = True
        autoretry_for = (Exception,)
        acks_late = True

        def own(self):
            return "hook"

    app = new_app()
    app.Task = Base
    task = app.tasks[charge.name]
    assert task.own() == "hook"
    assert task.acks_late is False
    assert not hasattr(task, "_orig_run"), "Celery's autoretry must not publish a message for ours"
    assert task.__doc__ == "Takes the money."


def test_options_of_steps_and_workflows_are_celerys(new_app):
    app = new_app(task_default_rate_limit="1/m")
    task = app.tasks[charge.name]
    assert (task.queue, task.priority, task.rate_limit) == ("payments", 3, "10/m")
    assert app.tasks[order.name].queue == "orders"
    assert not app.tasks["durable_celery.advance"].rate_limit, "a default limit must not hold back turns"


def test_annotations_for_all_tasks_leave_the_engines_own_alone(new_app):
    every = {"rate_limit": "2/m", "acks_late": True, "ignore_result": False, "reject_on_worker_lost": True}
    app = new_app(task_annotations={"*": every})
    for name in ("advance", "tick", "purge", "run_task"):
        task = app.tasks[f"durable_celery.{name}"]
        assert (task.rate_limit, task.acks_late, task.ignore_result) == (0, False, True)
    task = app.tasks[charge.name]
    assert (task.rate_limit, task.acks_late, task.reject_on_worker_lost) == ("2/m", False, False)
    assert app.tasks[order.name].acks_late


def test_a_name_that_another_task_has_is_left_to_it_and_told(new_app, caplog):
    app = new_app()
    app.finalize()
    name = f"tests.celery.taken_{uuid4().hex}"

    @app.task(name=name, shared=False)
    def theirs():
        return "theirs"

    @step(name=name)
    def ours():
        return "ours"

    assert app.tasks[name]() == "theirs"
    assert f"the name {name!r} belongs to another Celery task" in caplog.text


# -- plain calls -------------------------------------------------------------------------------------------------------


def test_a_plain_call_runs_the_body_with_the_task_id_as_key(new_app):
    app = new_app()
    result = app.tasks[charge.name].apply((7,), {"amount": 5}, task_id="task-1")
    assert result.get() == [7, 5, "task-1", 1, ""]


def test_a_plain_call_of_an_async_body_waits_for_it(new_app):
    assert new_app().tasks[asynchronous.name].apply((7,)).get() == 7


def test_arguments_of_a_plain_call_are_checked_against_the_body(new_app):
    app = new_app()
    with pytest.raises(TypeError):
        app.tasks[charge.name].delay()
    with pytest.raises(TypeError):
        app.tasks[charge.name].delay(1, 2, 3)


# -- the engine's own tasks --------------------------------------------------------------------------------------------


def test_an_advance_takes_the_turns_of_the_instance_in_its_header_or_argument(new_app, monkeypatch):
    taken: list[UUID] = []
    monkeypatch.setattr(turns, "advance", taken.append)
    task = new_app().tasks["durable_celery.advance"]
    first, second = uuid4(), uuid4()
    task.apply(headers={"durable": {"instance": str(first)}})
    task.apply((str(second),))
    task.apply((second,))
    assert second in taken


def test_a_tick_ticks_in_the_name_of_the_worker(new_app, monkeypatch):
    ticks = []
    monkeypatch.setattr(sweeps, "tick", lambda **given: ticks.append(given))
    new_app().tasks["durable_celery.tick"].apply()
    assert len(ticks) == 1
    assert set(ticks[0]) == {"by", "by_beat"}
    assert ticks[0]["by_beat"] is True


def test_a_purge_that_had_no_time_for_all_sends_another(new_app, monkeypatch):
    task = new_app().tasks["durable_celery.purge"]
    sent = []
    monkeypatch.setattr(type(task), "apply_async", lambda self: sent.append(self.name))
    reports = [purging.PurgeReport(more=True), purging.PurgeReport()]
    monkeypatch.setattr(purging, "purge", lambda **given: reports.pop(0) if given == {"seconds": 60.0} else None)
    task.apply()
    assert sent == ["durable_celery.purge"]
    task.apply()
    assert len(sent) == 1
    assert reports == []


def test_a_message_by_a_workflows_name_starts_one_with_the_id_of_the_message(new_app, monkeypatch):
    started = []

    def start(name, args, kwargs, task_id):
        started.append((name, tuple(args), kwargs, task_id))
        return task_id

    monkeypatch.setattr(tasks, "start_by_message", start)
    app = new_app()
    assert app.tasks[order.name].apply((7,), task_id="abc").get() == "abc"
    assert started == [(order.name, (7,), {}, "abc")]
    assert app.tasks[order.name].acks_late, "a killed worker's message comes again"


def test_a_start_that_met_a_database_out_of_reach_is_tried_again(new_app, monkeypatch):
    def start(*_):
        raise ConnectionError("the database is away")

    monkeypatch.setattr(tasks, "start_by_message", start)
    app = new_app()
    tried = []

    def retry(self, **given):
        tried.append(given)
        return Retry()

    monkeypatch.setattr(type(app.tasks[order.name]), "retry", retry)
    result = app.tasks[order.name].apply((7,))
    assert result.state == "RETRY"
    assert tried[0]["max_retries"] is None


def test_bad_arguments_of_a_start_are_a_failure_at_once(new_app, monkeypatch):
    def start(*_):
        raise TypeError("order() takes 1 argument")

    monkeypatch.setattr(tasks, "start_by_message", start)
    assert new_app().tasks[order.name].apply((7, 8)).state == "FAILURE"


def test_a_body_without_a_proper_name_is_a_task_all_the_same():
    from durable_celery import step as made

    nameless = made(name="tests.nameless")(lambda number: number + 1)
    assert nameless.call(1) == 2
    assert nameless.task.apply((2,)).get() == 3
