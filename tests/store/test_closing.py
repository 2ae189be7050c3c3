"""A turn that closes: what it withdraws, what it ends, and what keeps the instance open."""

from __future__ import annotations

import threading
from functools import partial

import pytest
from django.db import connection, transaction

from django_app.models import Mailbox, Message, WorkflowKey
from durable_celery.errors import InstanceClosed
from tests.store.making import (
    NOW,
    SIGNAL,
    at,
    at_once,
    claim,
    claimed,
    commit_of,
    end,
    entry,
    instance,
    running,
    step_row,
    turn,
)

pytestmark = pytest.mark.django_db


def test_a_turn_of_an_ended_instance_changes_nothing(store):
    instance_id, _ = running(store)
    turn(store, instance_id, state="FAILED", closes=True)
    for state in ("RUNNING", "WAITING", "COMPLETED", "BLOCKED"):
        assert store.commit_turn(commit_of(instance_id, state=state)) is None
    assert instance(instance_id).state == "FAILED"


def test_withdrawn_rows_are_cancelled_if_unclaimed_and_abandoned_if_claimed(store):
    instance_id, ids = running(
        store, entry("1.0"), entry("1.1", state="HELD"), entry("1.2"), entry("1.3"), entry("1.4"), entry("1.5")
    )
    scheduled, held, retrying, working, external, done = ids
    end(store, claimed(store, retrying), "RETRYING", due_at=at(30))
    claim(store, working)
    end(store, claimed(store, external), "EXTERNAL")
    end(store, claimed(store, done))
    turn(store, instance_id, withdrawn=ids)
    states = {pk: step_row(pk).state for pk in ids}
    assert states == {
        scheduled: "CANCELLED", held: "CANCELLED", retrying: "CANCELLED", working: "ABANDONED", external: "ABANDONED",
        done: "SUCCEEDED",
    }  # fmt: skip
    assert {step_row(pk).abandoned for pk in ids} == {True}
    assert step_row(scheduled).finished_at == at(2)
    assert step_row(working).finished_at is None
    assert step_row(working).look_at is not None
    assert not store.has_news(instance_id)


@pytest.mark.parametrize("state", ["FAILED", "CANCELLED"])
def test_a_step_claimed_since_the_load_whose_compensation_would_be_forgotten_keeps_the_run_open(store, state):
    instance_id, (step_id,) = running(store, entry(compensation='{"name": "shop.refund"}'))
    claimed(store, step_id)
    assert turn(store, instance_id, state=state, closes=True, withdrawn=[step_id]) is None
    assert (instance(instance_id).state, step_row(step_id).state) == ("WAITING", "RUNNING")
    assert turn(store, instance_id, state="COMPENSATING", closing_as=state, closes=True, withdrawn=[step_id])
    assert (instance(instance_id).state, step_row(step_id).state) == ("COMPENSATING", "ABANDONED")


def test_the_end_of_an_abandoned_attempt_is_kept_and_never_news(store):
    instance_id, (step_id,) = running(store)
    step = claimed(store, step_id)
    turn(store, instance_id, withdrawn=[step_id])
    assert end(store, step, "SUCCEEDED", result="7").ok
    row = step_row(step_id)
    assert (row.state, row.result, row.abandoned, row.look_at) == ("SUCCEEDED", "7", True, None)
    assert not store.has_news(instance_id)
    assert store.due_steps(at(1000), 10) == []


def test_an_abandoned_attempt_gets_no_further_attempt(store):
    instance_id, (step_id,) = running(store)
    step = claimed(store, step_id)
    turn(store, instance_id, withdrawn=[step_id])
    assert end(store, step, "RETRYING", due_at=at(30), failure="{}").ok
    row = step_row(step_id)
    assert (row.state, row.failure, row.look_at) == ("CANCELLED", "{}", None)
    assert row.finished_at is not None
    assert claim(store, step_id, now=at(100)) is None


def test_a_closing_turn_ends_the_instance_its_mailbox_and_its_key(store):
    instance_id, (step_id,) = running(store, key="k")
    end(store, claimed(store, step_id))
    assert turn(store, instance_id, state="COMPLETED", result="7", closes=True) is not None
    row = instance(instance_id)
    assert (row.state, row.result, row.finished_at, row.open_key, row.look_at) == ("COMPLETED", "7", at(2), None, None)
    assert Mailbox.objects.get().closed_at == at(2)
    key = WorkflowKey.objects.get()
    assert (key.open_id, key.last_id, key.last_state) == (None, instance_id, "COMPLETED")
    assert step_row(step_id).look_at is None
    assert store.find_by_key("shop.fulfil", "k").id == instance_id


def test_an_instance_that_compensates_takes_no_message_and_keeps_its_key_until_its_end(store):
    instance_id, _ = running(store, key="k")
    turn(store, instance_id, state="COMPENSATING", closing_as="FAILED", failure="{}", closes=True)
    assert instance(instance_id).closing_as == "FAILED"
    with pytest.raises(InstanceClosed):
        store.send(instance_id, SIGNAL, NOW)
    assert WorkflowKey.objects.get().open_id == instance_id
    assert store.commit_turn(commit_of(instance_id, state="WAITING")) is None
    turn(store, instance_id, state="FAILED", failure="{}", closes=True)
    assert (instance(instance_id).state, instance(instance_id).closing_as) == ("FAILED", "")
    assert WorkflowKey.objects.get().last_state == "FAILED"


def test_a_message_that_came_after_the_load_keeps_the_instance_open(store):
    instance_id, _ = running(store)
    store.send(instance_id, SIGNAL, NOW)
    seen = Message.objects.get().id
    closing = {"state": "COMPLETED", "closes": True}
    assert turn(store, instance_id, **closing) is None
    assert turn(store, instance_id, **closing, left_messages=[]) is None
    assert (instance(instance_id).state, Mailbox.objects.get().closed_at) == ("WAITING", None)
    assert turn(store, instance_id, **closing, last_message=seen, left_messages=[seen]) is not None
    assert Message.objects.get().look_at is None


def test_a_message_with_a_lower_id_that_came_late_keeps_the_instance_open(store):
    instance_id, _ = running(store)
    for _ in range(2):
        store.send(instance_id, SIGNAL, NOW)
    late, seen = Message.objects.order_by("id").values_list("id", flat=True)
    closing = {"state": "COMPLETED", "closes": True, "last_message": seen, "taken_messages": {seen: 0}}
    assert turn(store, instance_id, **closing, left_messages=[]) is None
    assert Message.objects.get(pk=seen).taken_turn is None
    assert turn(store, instance_id, **{**closing, "taken_messages": {seen: 0, late: 1}}, left_messages=[]) is not None


@pytest.mark.django_db(transaction=True)
def test_a_turn_does_not_close_while_a_sender_is_at_the_mailbox(store):
    instance_id, _ = running(store)
    inside, leave = threading.Event(), threading.Event()
    waits = connection.vendor == "sqlite"  # one writer: the sender shuts out the whole turn until it has committed

    def send():
        with transaction.atomic():
            store.send(instance_id, SIGNAL, NOW)
            inside.set()
            leave.wait(30)

    def close():
        inside.wait(30)
        if waits:
            leave.set()
        try:
            return turn(store, instance_id, state="COMPLETED", closes=True)
        finally:
            leave.set()

    sent, closed = at_once(send, close)
    assert (sent, closed) == (None, None)
    assert (instance(instance_id).state, Message.objects.count()) == ("WAITING", 1)


@pytest.mark.django_db(transaction=True)
def test_a_signal_racing_the_close_is_kept_or_its_sender_told(store):
    for _ in range(5):
        instance_id, _ = running(store)
        results = at_once(
            partial(turn, store, instance_id, state="COMPLETED", closes=True),
            *[partial(store.send, instance_id, SIGNAL, NOW) for _ in range(3)],
        )
        closed, sent = results[0], results[1:]
        told = [r for r in sent if isinstance(r, BaseException)]
        assert {type(error).__name__ for error in told} <= {"InstanceClosed"}
        assert not isinstance(closed, BaseException)
        kept = Message.objects.filter(instance_id=instance_id).count()
        assert kept + len(told) == 3
        assert kept == 0 if instance(instance_id).state == "COMPLETED" else kept > 0
