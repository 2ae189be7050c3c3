"""Updates in the store: found by their id, answered once, refused without a turn, withdrawn only after the end."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest

from django_app.models import Message, WorkflowInstance
from durable_celery.errors import InstanceClosed
from durable_celery.ports import NewMessage
from tests.store.making import NOW, at, at_once, create, instance, running, turn

pytestmark = pytest.mark.django_db


def update(dedupe: str = "u", **changes: Any) -> NewMessage:
    return NewMessage(**{"kind": "update", "name": "add", "payload": "[1]", "dedupe": dedupe, **changes})


def sent(store: Any, **changes: Any) -> tuple[Any, int]:
    """An instance after its first turn with one update; both ids."""
    instance_id, _ = running(store)
    store.send(instance_id, update(**changes), NOW)
    return instance_id, Message.objects.get().id


def test_an_update_is_found_by_its_id_and_no_signal_with_the_same_one(store: Any) -> None:
    instance_id, message = sent(store)
    store.send(instance_id, NewMessage(kind="signal", name="add", payload="1", dedupe="u"), NOW)
    found = store.update_of(instance_id, "u")
    assert (found.id, found.name, found.rejected, found.answer) == (message, "add", False, None)
    assert store.update_of(instance_id, "other") is None
    assert store.update_of(uuid4(), "u") is None
    assert Message.objects.count() == 2


def test_an_update_is_looked_for_in_one_statement(store: Any, costs: Any) -> None:
    instance_id, _ = sent(store)
    with costs() as statements:
        store.update_of(instance_id, "u")
    assert len(statements) == 1


def test_an_answer_is_stored_with_the_turn_and_the_first_one_stays(store: Any) -> None:
    instance_id, message = sent(store)
    turn(store, instance_id, taken_messages={message: 0}, answers={message: "first"})
    assert store.update_of(instance_id, "u").answer == "first"
    assert store.load(instance_id).journal.messages[0].answered
    WorkflowInstance.objects.update(turn=1)
    turn(store, instance_id, taken_messages={message: 0}, answers={message: "second"})
    assert store.update_of(instance_id, "u").answer == "first"


def test_answers_of_many_updates_are_kept_each(store: Any) -> None:
    instance_id, _ = running(store)
    for number in range(3):
        store.send(instance_id, update(str(number)), NOW)
    ids = [store.update_of(instance_id, str(number)).id for number in range(3)]
    turn(
        store, instance_id, taken_messages={ids[0]: 0, ids[2]: 2}, answers={ids[0]: "a", ids[2]: "c"},
        rejected={ids[1]: "b"},
    )  # fmt: skip
    found = [store.update_of(instance_id, str(number)) for number in range(3)]
    assert [(each.answer, each.rejected) for each in found] == [("a", False), ("b", True), ("c", False)]
    assert [message.id for message in store.load(instance_id).journal.messages] == [ids[0], ids[2]]


def test_a_refusal_moves_the_revision_and_no_turn_and_is_no_news(store: Any) -> None:
    instance_id, message = sent(store)
    before = instance(instance_id)
    assert store.has_news(instance_id)
    assert store.reject_updates(instance_id, before.revision, {message: "no"}, at(5))
    after = instance(instance_id)
    assert (after.turn, after.turn_at, after.state) == (before.turn, before.turn_at, before.state)
    assert after.revision == before.revision + 1
    assert not store.has_news(instance_id)
    assert store.due_messages(at(100), 10) == []
    assert not store.load(instance_id).journal.messages
    assert not store.reject_updates(instance_id, before.revision, {message: "again"}, at(6))
    assert store.update_of(instance_id, "u").answer == "no"


def test_a_refusal_of_what_a_turn_took_in_meanwhile_changes_nothing(store: Any) -> None:
    instance_id, message = sent(store)
    seen = instance(instance_id).revision
    turn(store, instance_id, taken_messages={message: 0}, answers={message: "yes"})
    assert not store.reject_updates(instance_id, seen, {message: "no"}, at(5))
    found = store.update_of(instance_id, "u")
    assert (found.answer, found.rejected) == ("yes", False)


def test_a_refused_update_is_removed_once_read_and_no_other_is(store: Any) -> None:
    instance_id, message = sent(store)
    store.discard_update(message)
    assert store.update_of(instance_id, "u") is not None
    store.reject_updates(instance_id, instance(instance_id).revision, {message: "no"}, at(5))
    store.discard_update(message)
    assert Message.objects.count() == 0


def test_an_update_is_withdrawn_only_from_an_instance_that_has_ended_without_it(store: Any) -> None:
    instance_id, message = sent(store)
    assert not store.withdraw_update(message)
    turn(store, instance_id, state="FAILED", closes=True, left_messages=[message])
    assert store.withdraw_update(message)
    assert Message.objects.count() == 0
    assert not store.withdraw_update(message)


def test_an_update_that_the_last_turn_took_in_is_not_withdrawn(store: Any) -> None:
    instance_id, message = sent(store)
    turn(store, instance_id, state="COMPLETED", closes=True, taken_messages={message: 0}, answers={message: "yes"})
    assert not store.withdraw_update(message)
    assert store.update_of(instance_id, "u").answer == "yes"


def test_a_retry_after_the_withdrawal_does_not_bring_it_back(store: Any) -> None:
    instance_id, message = sent(store)
    turn(store, instance_id, state="FAILED", closes=True, left_messages=[message])
    assert store.withdraw_update(message)
    store.reopen(instance_id, at(9))
    assert not store.load(instance_id).journal.messages
    store.send(instance_id, update(), at(10))
    assert not store.withdraw_update(store.update_of(instance_id, "u").id)


def test_updates_to_an_ended_instance_are_refused(store: Any) -> None:
    instance_id = create(store).id
    turn(store, instance_id, state="FAILED", closes=True)
    with pytest.raises(InstanceClosed):
        store.send(instance_id, update(), NOW)


@pytest.mark.django_db(transaction=True)
def test_one_update_id_from_many_senders_at_one_moment_is_one_update(store: Any) -> None:
    instance_id, _ = running(store)
    results = at_once(*[lambda: store.send(instance_id, update(), NOW) for _ in range(8)])
    assert [r for r in results if r is not True] == []
    assert Message.objects.count() == 1


@pytest.mark.django_db(transaction=True)
def test_a_withdrawal_and_a_retry_at_one_moment_never_leave_an_update_that_was_withdrawn(store: Any) -> None:
    for _ in range(5):
        Message.objects.all().delete()
        instance_id, message = sent(store)
        turn(store, instance_id, state="FAILED", closes=True, left_messages=[message])
        withdrawn, _ = at_once(
            lambda message=message: store.withdraw_update(message),
            lambda instance_id=instance_id: store.reopen(instance_id, at(9)),
        )
        assert withdrawn in (True, False)
        assert Message.objects.exists() is not withdrawn
