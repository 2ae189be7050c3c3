"""Messages: stored in the sender's transaction, once, for the newest run."""

from __future__ import annotations

from uuid import uuid4

import pytest
from django.db import transaction

from django_app.models import Mailbox, Message, WorkflowInstance
from durable_celery.errors import InstanceClosed, InstanceNotFound
from durable_celery.ports import NewMessage
from tests.store.making import NOW, at, at_once, create, instance, running, turn

pytestmark = pytest.mark.django_db


def signal(name="paid", payload="1", dedupe=None) -> NewMessage:
    return NewMessage(kind="signal", name=name, payload=payload, dedupe=dedupe)


def test_messages_are_read_in_the_order_they_were_sent(store):
    instance_id = create(store).id
    for number in range(3):
        assert store.send(instance_id, signal(payload=str(number)), at(number))
    stored = store.load(instance_id).journal.messages
    assert [(m.payload, m.stored_at, m.taken_turn) for m in stored] == [(str(n), at(n), None) for n in range(3)]


def test_a_message_is_stored_in_the_transaction_of_its_sender(store):
    instance_id = create(store).id
    with pytest.raises(RuntimeError):  # noqa: PT012
        with transaction.atomic():
            store.send(instance_id, signal(), NOW)
            raise RuntimeError
    assert Message.objects.count() == 0


def test_a_duplicate_message_is_stored_once_and_hints_until_it_is_taken(store):
    instance_id = create(store).id
    first = signal(dedupe="webhook-77")
    assert store.send(instance_id, first, NOW)
    assert store.send(instance_id, signal(payload="2", dedupe="webhook-77"), at(1))
    message = Message.objects.get()
    assert (message.payload, message.dedupe) == ("1", "webhook-77")
    turn(store, instance_id, taken_messages={message.id: 0})
    assert not store.send(instance_id, first, at(2))
    assert Message.objects.count() == 1


def test_ids_of_messages_that_collations_take_for_one_are_two(store):
    instance_id = create(store).id
    for dedupe in ("a", "A", "a ", "á"):
        store.send(instance_id, signal(dedupe=dedupe), NOW)
    assert Message.objects.count() == 4


def test_the_same_id_at_two_instances_is_two_messages(store):
    for instance_id in (create(store).id, create(store).id):
        assert store.send(instance_id, signal(dedupe="1"), NOW)
    assert Message.objects.count() == 2


def test_a_message_to_an_ended_instance_is_refused_and_the_transaction_usable(store):
    instance_id = create(store).id
    turn(store, instance_id, state="FAILED", closes=True)
    with transaction.atomic():
        with pytest.raises(InstanceClosed, match="has ended") as caught:
            store.send(instance_id, signal(), NOW)
        other = create(store)
    assert (caught.value.instance_id, caught.value.status) == (str(instance_id), "FAILED")
    assert Message.objects.count() == 0
    assert instance(other.id).state == "PENDING"


def test_a_message_to_nobody_is_refused(store):
    with pytest.raises(InstanceNotFound, match="there is no workflow instance"):
        store.send(uuid4(), signal(), NOW)


def test_a_message_follows_a_chain_of_continued_runs(store):
    first, second = (create(store).id for _ in range(2))
    WorkflowInstance.objects.filter(pk=first).update(state="CONTINUED")
    Mailbox.objects.filter(pk=second).delete()
    WorkflowInstance.objects.filter(pk=second).update(chain_id=first, run_number=2)
    for target in (first, second):
        store.send(target, signal(), NOW)
    assert set(Message.objects.values_list("chain_id", flat=True)) == {first}
    assert store.has_news(second)
    assert len(store.load(first, newest=True).journal.messages) == 2


def test_a_message_costs_two_statements(store, costs):
    instance_id = create(store).id
    with costs() as sent:
        store.send(instance_id, signal(), NOW)
    assert len(sent) == (3 if store.vendor == "sqlite" else 2)


def test_a_message_nobody_took_in_is_found_after_its_grace_and_again_later(store, costs):
    instance_id, _ = running(store)
    store.send(instance_id, signal(), NOW)
    assert store.due_messages(at(1), 10) == []
    assert store.due_messages(at(3), 10) == [instance_id]
    assert store.due_messages(at(4), 10) == []
    assert store.due_messages(at(40), 10) == [instance_id]
    turn(store, instance_id, taken_messages={Message.objects.get().id: 0})
    with costs() as sent:
        assert store.due_messages(at(10_000), 10) == []
    assert len(sent) == 1


@pytest.mark.parametrize("values", [{"paused_at": NOW}, {"state": "BLOCKED"}])
def test_messages_of_paused_and_blocked_instances_wait(store, values):
    instance_id, _ = running(store)
    store.send(instance_id, signal(), NOW)
    WorkflowInstance.objects.filter(pk=instance_id).update(**values)
    assert store.due_messages(at(100), 10) == []


def test_a_signal_name_of_any_script_is_kept_as_it_is(store):
    instance_id = create(store).id
    store.send(instance_id, signal(name="bezahlt-ä-✓"), NOW)
    assert store.load(instance_id).journal.messages[0].name == "bezahlt-ä-✓"


@pytest.mark.django_db(transaction=True)
def test_the_same_message_from_many_senders_at_one_moment_is_stored_once(store):
    instance_id = create(store).id
    results = at_once(*[lambda: store.send(instance_id, signal(dedupe="1"), NOW) for _ in range(10)])
    assert [r for r in results if r is not True] == []
    assert Message.objects.count() == 1


@pytest.mark.django_db(transaction=True)
def test_many_senders_in_open_transactions_do_not_wait_for_each_other_or_for_a_turn(store):
    instance_id, _ = running(store)

    def send():
        with transaction.atomic():
            return store.send(instance_id, signal(), NOW)

    results = at_once(*[send for _ in range(8)], lambda: turn(store, instance_id) is not None)
    assert [r for r in results if r is not True] == []
    assert Message.objects.count() == 8
