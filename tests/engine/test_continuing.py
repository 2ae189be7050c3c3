"""continue_as_new: a chain of runs is one instance to all outside."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import Group

from django_app.models import Message, StepResult, WorkflowInstance
from durable_celery import (
    InstanceClosed,
    NotRetryable,
    Workflow,
    WorkflowCancelled,
    WorkflowFailed,
    WorkflowTerminated,
    continue_as_new,
    current_workflow,
    get_handle,
    set_status,
    step,
    workflow,
)
from durable_celery.handle import WorkflowHandle
from tests.engine.continuing import (
    _nothing_yet,  # noqa: F401
    charged,
    counter,
    inc,
    runs,
    seen,
    stop,
    subscription,
)
from tests.pump import Pump


@workflow(name="chain.watching")
def watching() -> Workflow[None]:
    seen.append(current_workflow())
    set_status(f"run {current_workflow().run_number}")
    yield from inc.wait()  # durable: ok
    yield from continue_as_new()


@workflow(name="chain.failing")
def failing(left: int) -> Workflow[None]:
    if left:
        yield from continue_as_new(left - 1)
    yield from refuse()


@step(name="chain.refuse", retry=None)
def refuse() -> None:
    raise ValueError("no")


# -- an instance that runs for years -----------------------------------------------------------------------------------


def test_a_monthly_subscription_goes_on_until_the_customer_stops(pump: Pump) -> None:
    handle = subscription.start("ana")
    pump.advance_time(days=95)
    assert charged == [("ana", month) for month in (1, 2, 3, 4)]
    assert subscription.get(key="customer-ana").id == handle.id
    assert runs(handle) == [(1, "CONTINUED"), (2, "CONTINUED"), (3, "CONTINUED"), (4, "WAITING")]
    assert StepResult.objects.filter(instance__chain_id=handle.id).count() == 4 * 2
    stop.send(handle, "too dear")
    pump.drain()
    assert handle.result(timeout=0) == "ana left after 4 months: too dear"
    assert [entry.name for entry in handle.history()] == ["chain.charge", "stop"]


def test_to_everybody_outside_it_stays_one_instance(pump: Pump) -> None:
    handle = counter.start(0, 3)
    first = handle.run_id
    for value in (1, 2):
        inc.send(handle, value)
        pump.drain()
    assert handle.id == first != handle.run_id
    assert (handle.status, handle.waiting_for.split(" since")[0]) == ("WAITING", "signal 'inc' at 1,")
    assert get_handle(handle.run_id).id == get_handle(first).id == handle.id
    middle = WorkflowInstance.objects.get(chain_id=handle.id, run_number=2)
    inc.send(get_handle(middle.pk), 4)
    pump.drain()
    assert handle.result(timeout=0) == get_handle(middle.pk).result(timeout=0) == 7
    with pytest.raises(InstanceClosed):
        inc.send(handle, 5)
    with pytest.raises(InstanceClosed):
        inc.send(middle.pk, 5)
    assert Message.objects.count() == 3


def test_what_belongs_to_the_instance_is_carried_and_what_belongs_to_the_run_is_not(pump: Pump) -> None:
    subject = Group.objects.create(name="a subject")
    handle = watching.using(
        key="w-1", queue="slow", priority=7, execution_timeout=timedelta(days=9), attributes={"city": "Bern"},
        memo={"by": "ana"}, subject=subject,
    ).start()  # fmt: skip
    pump.drain()
    WorkflowInstance.objects.update(context={}, parent_position="", parent_close="abandon")
    inc.send(handle, 1)
    pump.now += timedelta(hours=1)
    pump.drain()
    first, second = WorkflowInstance.objects.filter(chain_id=handle.id).order_by("run_number")
    same = (
        "name", "version", "key", "key_hash", "attributes", "memo", "context", "subject_type", "subject_id",
        "subject_hash", "root_id", "parent_id", "parent_position", "parent_close", "queue", "priority", "deadline_at",
    )  # fmt: skip
    assert {name: getattr(second, name) for name in same} == {name: getattr(first, name) for name in same}
    assert first.deadline_at == first.created_at + timedelta(days=9)
    assert (first.state, first.open_key, second.open_key) == ("CONTINUED", None, first.key_hash)
    assert (first.finished_at, second.created_at, second.started_at) == (pump.now, pump.now, pump.now)
    assert (first.status_text, second.status_text) == ("run 1", "run 2")
    assert list(dict.fromkeys((info.id, info.run_id, info.run_number, info.key) for info in seen)) == [
        (handle.id, str(first.pk), 1, "w-1"),
        (handle.id, str(second.pk), 2, "w-1"),
    ]
    assert list(WorkflowInstance.objects.for_subject(subject).open()) == [second]


def test_messages_nobody_asked_for_go_on_in_order_and_are_read_once(pump: Pump) -> None:
    handle = counter.start(0, 3)
    handle.signal("unheard", "a")
    pump.drain()
    first = Message.objects.get(name="unheard")
    assert (first.taken_turn, first.delivered_turn) == (1, None)
    for value in (1, 2, 3):
        inc.send(handle, value, signal_id=f"n-{value}")
        inc.send(handle, value, signal_id=f"n-{value}")
    pump.drain()
    inc_sends = list(Message.objects.filter(name="inc").order_by("id"))
    newest = [str(run) for run in WorkflowInstance.objects.order_by("run_number").values_list("pk", flat=True)]
    assert [str(message.instance_id) for message in inc_sends] == newest[:3]
    assert all(message.delivered_turn == message.taken_turn for message in inc_sends)
    assert handle.result(timeout=0) == 6
    left = Message.objects.get(name="unheard")
    assert (left.delivered_turn, left.stored_at) == (None, first.stored_at)
    assert runs(handle)[-1] == (4, "COMPLETED")


def test_a_signal_id_counts_once_for_the_whole_chain(pump: Pump) -> None:
    handle = counter.start(0, 2)
    inc.send(handle, 5, signal_id="webhook-1")
    pump.drain()
    inc.send(handle, 5, signal_id="webhook-1")
    pump.drain()
    assert handle.status == "WAITING"
    assert Message.objects.count() == 1


def test_the_time_of_the_whole_chain_goes_on(pump: Pump) -> None:
    handle = subscription.using(execution_timeout=timedelta(days=70)).start("ben")
    pump.advance_time(days=71)
    with pytest.raises(WorkflowFailed, match="execution_timeout"):
        handle.result(timeout=0)
    assert charged == [("ben", 1), ("ben", 2), ("ben", 3)]
    assert runs(handle) == [(1, "CONTINUED"), (2, "CONTINUED"), (3, "FAILED")]


# -- acts --------------------------------------------------------------------------------------------------------------


def test_acts_reach_the_newest_run(pump: Pump) -> None:
    handle = counter.start(0, 9)
    for _ in range(3):
        inc.send(handle, 1)
    pump.drain()
    handle.pause("look")
    assert handle.status == "PAUSED"
    inc.send(handle, 1)
    pump.drain()
    assert len(runs(handle)) == 4
    handle.resume()
    pump.drain()
    assert len(runs(handle)) == 5
    assert handle.cancel("enough") == "requested"
    pump.drain()
    with pytest.raises(WorkflowCancelled, match="enough"):
        handle.result(timeout=0)
    assert handle.cancel() == handle.terminate() == "CANCELLED"


def test_terminate_ends_the_newest_run_and_frees_the_key(pump: Pump) -> None:
    handle = subscription.start("cleo")
    pump.advance_time(days=31)
    assert handle.terminate("gone") == "requested"
    with pytest.raises(WorkflowTerminated):
        handle.result(timeout=0)
    assert subscription.start("cleo").created
    assert runs(handle) == [(1, "CONTINUED"), (2, "TERMINATED")]


@contextmanager
def between(pump: Pump, point: str, act: Any) -> Iterator[list[Any]]:
    """Does ``act`` once when a turn reaches this point; leaves its answer in the list."""
    from durable_celery import faults

    answers: list[Any] = []

    def hook(name: str) -> None:
        if name == point and not answers:
            answers.append(None)
            answers[0] = act()

    faults.set_hook(hook)
    try:
        yield answers
    finally:
        faults.set_hook(None)


def test_a_cancel_that_comes_while_the_run_goes_on_is_not_lost(pump: Pump) -> None:
    handle = counter.start(0, 2)
    pump.drain()
    with between(pump, "turn.before_commit", lambda: handle.cancel("now")) as answers:
        inc.send(handle, 1)
        pump.drain()
    assert answers == ["requested"]
    assert runs(handle) == [(1, "CANCELLED")]


def test_a_cancel_right_after_the_commit_hits_the_next_run(pump: Pump) -> None:
    handle = counter.start(0, 2)
    pump.drain()
    with between(pump, "turn.after_commit", lambda: handle.cancel("now")) as answers:
        inc.send(handle, 1)
        pump.drain()
    assert answers == ["requested"]
    assert runs(handle) == [(1, "CONTINUED"), (2, "CANCELLED")]


def test_retry_reopens_the_newest_run_and_refuses_an_older_one(pump: Pump) -> None:
    handle = failing.start(2)
    pump.drain()
    assert runs(handle) == [(1, "CONTINUED"), (2, "CONTINUED"), (3, "FAILED")]
    second = WorkflowInstance.objects.get(chain_id=handle.id, run_number=2)
    with pytest.raises(NotRetryable, match=f"run {second.pk} has continued as another, the newest is {handle.run_id}"):
        WorkflowHandle(str(second.pk)).retry()
    handle.retry()
    assert runs(handle)[-1] == (3, "RUNNING")
    pump.finish()
    with pytest.raises(WorkflowFailed, match="ValueError: no"):
        handle.result(timeout=0)
    assert [entry.attempts for entry in handle.history()] == [2]
