"""continue_as_new: keys, what is told, and what a long chain costs."""

from __future__ import annotations

from typing import Any

import pytest
from django.dispatch import Signal as DjangoSignal

from django_app import signals
from django_app.models import Mailbox, WorkflowInstance, WorkflowKey
from durable_celery import (
    KeyConflict,
    Workflow,
    WorkflowBlocked,
    continue_as_new,
    get_handle,
    workflow,
)
from durable_celery.core import identity
from durable_celery.handle import WorkflowHandle
from tests.engine.continuing import (
    _nothing_yet,  # noqa: F401
    charged,
    counter,
    inc,
    runs,
    stop,
    subscription,
)
from tests.pump import Pump, counted


@workflow(name="chain.trial", key=lambda customer: f"customer-{customer}", queue="trials", priority=2)
def trial(customer: str) -> Workflow[str]:
    yield from stop.wait()  # durable: ok
    return (yield from continue_as_new(customer, 1, workflow=subscription))


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
