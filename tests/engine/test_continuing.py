"""continue_as_new with the store: what is carried over, who follows the chain, what it costs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.dispatch import Signal as DjangoSignal

from django_app import signals
from django_app.models import Mailbox, Message, StepResult, WorkflowInstance, WorkflowKey
from durable_celery import (
    InstanceClosed,
    KeyConflict,
    NotRetryable,
    Signal,
    Workflow,
    WorkflowBlocked,
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
from durable_celery.core import identity
from durable_celery.handle import WorkflowHandle
from tests.pump import Pump, counted

inc = Signal("inc", int)
stop = Signal("stop", str)
charged: list[tuple[str, int]] = []
seen: list[Any] = []


@pytest.fixture(autouse=True)
def _nothing_yet() -> None:
    charged.clear()
    seen.clear()


@workflow(name="chain.counter")
def counter(total: int, left: int) -> Workflow[int]:
    if not left:
        return total
    value = yield from inc.wait()  # durable: ok
    return (yield from continue_as_new(total + value, left - 1))


@step(name="chain.charge")
def charge(customer: str, month: int) -> None:
    charged.append((customer, month))


@workflow(name="chain.subscription", key=lambda customer, month=1: f"customer-{customer}")
def subscription(customer: str, month: int = 1) -> Workflow[str]:
    """Charges once a month, for ever: a journal of three rows each month, not one that grows for years."""
    yield from charge(customer, month)
    reason = yield from stop.wait(timeout=timedelta(days=30), default="")
    if reason:
        return f"{customer} left after {month} months: {reason}"
    return (yield from continue_as_new(customer, month + 1))


@workflow(name="chain.watching")
def watching() -> Workflow[None]:
    seen.append(current_workflow())
    set_status(f"run {current_workflow().run_number}")
    yield from inc.wait()  # durable: ok
    yield from continue_as_new()


@workflow(name="chain.trial", key=lambda customer: f"customer-{customer}", queue="trials", priority=2)
def trial(customer: str) -> Workflow[str]:
    yield from stop.wait()  # durable: ok
    return (yield from continue_as_new(customer, 1, workflow=subscription))


@workflow(name="chain.failing")
def failing(left: int) -> Workflow[None]:
    if left:
        yield from continue_as_new(left - 1)
    yield from refuse()


@step(name="chain.refuse", retry=None)
def refuse() -> None:
    raise ValueError("no")


def runs(handle: WorkflowHandle[Any]) -> list[tuple[int, str]]:
    """Number and state of each run of the chain."""
    found = WorkflowInstance.objects.filter(chain_id=handle.id).order_by("run_number")
    return list(found.values_list("run_number", "state"))


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


# -- keys --------------------------------------------------------------------------------------------------------------


def test_a_continued_run_does_not_count_as_closed(pump: Pump) -> None:
    handle = subscription.using(reuse="reject").start("dora")
    pump.advance_time(days=40)
    again = subscription.using(reuse="reject").start("dora")
    assert (again.id, again.created) == (handle.id, False)
    assert subscription.get(key="customer-dora").id == handle.id
    with pytest.raises(KeyConflict, match="other arguments"):
        subscription.start("dora", 7)
    stop.send(handle, "bye")
    pump.drain()
    with pytest.raises(KeyConflict, match="COMPLETED"):
        subscription.using(reuse="reject").start("dora")


def test_terminate_existing_ends_the_newest_run(pump: Pump) -> None:
    handle = subscription.start("emil")
    pump.advance_time(days=40)
    other = subscription.using(conflict="terminate_existing").start("emil", 3)
    pump.drain()
    assert runs(handle) == [(1, "CONTINUED"), (2, "TERMINATED")]
    assert (other.created, subscription.get(key="customer-emil").id) == (True, other.id)


def test_another_workflow_takes_over_with_the_key(pump: Pump) -> None:
    handle = trial.using(key="customer-finn").start("finn")
    pump.drain()
    stop.send(handle, "convinced")
    pump.drain()
    first, second = WorkflowInstance.objects.filter(chain_id=handle.id).order_by("run_number")
    assert (second.name, second.key, second.open_key) == (
        "chain.subscription", "customer-finn", identity.key_hash("chain.subscription", "customer-finn"),
    )  # fmt: skip
    assert (first.queue, second.queue, second.priority) == ("trials", "trials", 2)
    assert charged == [("finn", 1)]
    assert (again := subscription.start("finn", 1)).id == handle.id
    assert not again.created
    for found in (trial, subscription):
        assert found.get(key="customer-finn").id == handle.id
    key_rows = {row.name: (row.open_id, row.last_id) for row in WorkflowKey.objects.all()}
    assert key_rows["chain.trial"] == (None, None)
    assert key_rows["chain.subscription"] == (first.pk, None)
    assert trial.using(key="customer-finn", reuse="reject").start("finn").created
    stop.send(handle, "bye")
    pump.drain()
    assert handle.result(timeout=0) == "finn left after 1 months: bye"


def test_where_the_key_is_taken_the_chain_waits_blocked_until_it_is_free(pump: Pump) -> None:
    owner = subscription.start("gil")
    handle = trial.start("gil")
    pump.drain()
    stop.send(handle, "convinced")
    pump.drain()
    with pytest.raises(WorkflowBlocked, match="its key 'customer-gil' is taken there by the open instance"):
        handle.result()
    assert runs(handle) == [(1, "BLOCKED")]
    owner.terminate()
    handle.retry()
    pump.drain()
    assert runs(handle) == [(1, "CONTINUED"), (2, "WAITING")]
    assert subscription.get(key="customer-gil").id == handle.id


# -- what is told, what it costs ---------------------------------------------------------------------------------------


def test_a_chain_starts_once_and_ends_once(pump: Pump) -> None:
    heard: list[tuple[str, Any]] = []

    def listen(name: str) -> Any:
        return lambda **told: heard.append((name, str(told["instance_id"])))

    listeners: dict[DjangoSignal, Any] = {
        signals.workflow_started: listen("started"),
        signals.workflow_finished: listen("finished"),
    }
    for signal, receiver in listeners.items():
        signal.connect(receiver)
    try:
        handle = counter.start(0, 2)
        for value in (1, 2):
            inc.send(handle, value)
            pump.drain()
    finally:
        for signal, receiver in listeners.items():
            signal.disconnect(receiver)
    assert handle.result(timeout=0) == 3
    assert heard == [("started", handle.id), ("finished", handle.id)]


def test_a_message_lost_on_the_way_to_a_new_run_is_found_by_the_tick(pump: Pump) -> None:
    handle = counter.start(0, 2)
    inc.send(handle, 1)
    pump.drain()
    pump.fate = lambda hint: ()
    inc.send(handle, 2)
    pump.fate = lambda hint: (0.0,)
    pump.finish()
    assert handle.result(timeout=0) == 3


def test_a_process_that_dies_at_any_point_of_it_changes_nothing(pump: Pump) -> None:
    for point in ("turn.before_commit", "turn.in_transaction", "turn.after_commit", "publish.before"):
        handle = counter.start(0, 2)
        pump.drain()
        pump.kill_at(point)
        inc.send(handle, 1)
        inc.send(handle, 2)
        pump.finish()
        assert handle.result(timeout=0) == 3, point
        assert runs(handle) == [(1, "CONTINUED"), (2, "CONTINUED"), (3, "COMPLETED")]


def test_five_thousand_runs_make_nobody_slower(pump: Pump) -> None:
    handle = counter.using(key="long").start(0, 10)
    inc.send(handle, 1)
    pump.drain()
    costs = [_costs(pump, handle)]
    first = WorkflowInstance.objects.get(pk=handle.id)
    WorkflowInstance.objects.filter(chain_id=handle.id, state="WAITING").update(run_number=5_001)
    copied = [field.attname for field in WorkflowInstance._meta.fields if field.attname not in ("id", "run_number")]
    WorkflowInstance.objects.bulk_create(
        [
            WorkflowInstance(
                id=identity.new_id(n, n.to_bytes(10, "big")), run_number=n,
                **{name: getattr(first, name) for name in copied},
            )
            for n in range(4, 5_001)
        ],
        batch_size=100,
    )  # fmt: skip
    costs.append(_costs(pump, handle))
    assert costs[0] == costs[1]
    assert max(costs[0].values()) <= 30
    assert runs(handle)[-1] == (5_002, "WAITING")


def _costs(pump: Pump, handle: WorkflowHandle[Any]) -> dict[str, int]:
    """How many statements each takes: sending, going on as the next run, looking, finding by key."""
    costs: dict[str, int] = {}
    for name, act in {
        "send": lambda: inc.send(handle, 1),
        "continue": pump.drain,
        "status": lambda: handle.status,
        "find by run": lambda: get_handle(handle.run_id),
        "get by key": lambda: counter.get(key="long"),
        "start under the key": lambda: counter.using(key="long").start(0, 10),
        "pause": handle.pause,
        "resume": handle.resume,
        "after": pump.drain,
    }.items():
        with counted() as sent:
            act()
        costs[name] = len(sent)
    return costs


def test_one_mailbox_serves_the_whole_chain(pump: Pump) -> None:
    handle = counter.start(0, 3)
    for value in (1, 2, 3):
        inc.send(handle, value)
    pump.drain()
    assert [str(pk) for pk in Mailbox.objects.values_list("pk", flat=True)] == [handle.id]
    assert Mailbox.objects.get().closed_at is not None
