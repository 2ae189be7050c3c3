"""Starting: in the caller's transaction, once for an id, once for a key."""

from __future__ import annotations

import dataclasses
from uuid import uuid4

import pytest
from django.db import transaction

from django_app.models import Mailbox, Message, WorkflowInstance, WorkflowKey
from durable_celery.core.identity import key_hash
from durable_celery.errors import BadValue, KeyConflict
from durable_celery.ports import NewMessage
from tests.store.making import (
    NOW,
    at,
    at_once,
    claimed,
    committed,
    create,
    instance,
    new_instance,
    running,
    step_row,
    turn,
)

pytestmark = pytest.mark.django_db


def test_a_started_instance_is_pending_with_everything_it_was_started_with(store):
    new = new_instance(
        key="order-7", start_at=at(60), look_at=at(65), queue="vip", priority=5, attributes={"city": "Köln"},
        memo={"by": "ana"}, context={"trace": "1"}, messages=[NewMessage(kind="signal", name="paid", payload="1")],
    )  # fmt: skip
    (created,) = store.create([new])
    assert (created.id, created.created, created.state, created.args) == (new.id, True, "PENDING", new.args)
    row = store.find(new.id)
    assert (row.name, row.version, row.key, row.state, row.revision, row.turn) == (
        "shop.fulfil", 1, "order-7", "PENDING", 0, 0,
    )  # fmt: skip
    assert (row.created_at, row.start_at, row.queue, row.priority) == (NOW, at(60), "vip", 5)
    assert (row.attributes, row.context) == ({"city": "Köln"}, {"trace": "1"})
    assert instance(new.id).look_at == at(65)
    assert instance(new.id).chain_id == instance(new.id).root_id == new.id
    (message,) = store.load(new.id).journal.messages
    assert (message.kind, message.name, message.payload, message.taken_turn) == ("signal", "paid", "1", None)


def test_a_start_that_is_repeated_with_its_id_gives_the_first_instance(store):
    new = new_instance(messages=[NewMessage(kind="signal", name="paid", payload="1")])
    store.create([new])
    (again,) = store.create([dataclasses.replace(new, args="[[2],{}]", created_at=at(1))])
    assert (again.id, again.created, again.args) == (new.id, False, new.args)
    assert (WorkflowInstance.objects.count(), Mailbox.objects.count(), Message.objects.count()) == (1, 1, 1)


def test_a_start_repeated_with_id_and_key_gives_the_first_also_after_another_took_the_key(store):
    first = new_instance(key="k")
    store.create([first])
    turn(store, first.id, state="COMPLETED", closes=True)
    second = create(store, key="k")
    (again,) = store.create([first])
    assert (again.id, again.created, again.state) == (first.id, False, "COMPLETED")
    assert WorkflowKey.objects.get().open_id == second.id


def test_an_open_key_gives_the_instance_that_has_it(store):
    first = create(store, key="k")
    second = create(store, key="k", args="[[2],{}]")
    assert (second.id, second.created, second.args) == (first.id, False, "[[1],{}]")
    assert WorkflowInstance.objects.count() == Mailbox.objects.count() == 1


def test_an_instance_used_for_its_key_gets_the_messages_of_the_start(store):
    message = NewMessage(kind="signal", name="paid", payload="1")
    first = create(store, key="k")
    create(store, key="k", messages=[message])
    create(store, key="k", messages=[message], args="[[2],{}]")
    assert [m.name for m in store.load(first.id).journal.messages] == ["paid"]


def test_a_key_conflict_under_fail_stores_nothing_and_leaves_the_transaction_usable(store):
    first = create(store, key="k")
    with transaction.atomic():
        with pytest.raises(KeyConflict, match="is taken by the open instance") as caught:
            create(store, key="k", conflict="fail")
        other = create(store)
    assert (caught.value.key, caught.value.instance_id) == ("k", str(first.id))
    assert set(WorkflowInstance.objects.values_list("id", flat=True)) == {first.id, other.id}


def test_terminate_existing_ends_the_open_instance_and_takes_its_key(store):
    first, (step_id, *_) = running(store, key="k")
    working = claimed(store, step_id)
    second = create(store, key="k", conflict="terminate_existing", created_at=at(9))
    ended = instance(first)
    assert (ended.state, ended.finished_at, ended.open_key, ended.look_at) == ("TERMINATED", at(9), None, None)
    assert (step_row(working.id).state, step_row(working.id).look_at) == ("ABANDONED", None)
    assert Mailbox.objects.get(pk=first).closed_at == at(9)
    assert second.created
    key = WorkflowKey.objects.get()
    assert (key.open_id, key.last_id, key.last_state) == (second.id, first, "TERMINATED")


@pytest.mark.parametrize(
    ("reuse", "ended_as", "allowed"),
    [
        ("allow", "COMPLETED", True),
        ("allow_if_failed", "COMPLETED", False),
        ("allow_if_failed", "FAILED", True),
        ("allow_if_failed", "CANCELLED", True),
        ("reject", "FAILED", False),
    ],
)
def test_a_closed_key_may_be_used_again_as_reuse_says(store, reuse, ended_as, allowed):
    first = create(store, key="k")
    assert turn(store, first.id, state=ended_as, closes=True) is not None
    if allowed:
        second = create(store, key="k", reuse=reuse)
        assert second.created
        assert instance(second.id).open_key == key_hash("shop.fulfil", "k")
    else:
        with pytest.raises(KeyConflict, match=f"which is {ended_as}"):
            create(store, key="k", reuse=reuse)
        assert WorkflowInstance.objects.count() == 1


@pytest.mark.parametrize("other", ["K", "k ", "ḱ", "ｋ", "K "])
def test_o38_keys_that_collations_take_for_one_are_two(store, other):
    ids = {create(store, key="k").id, create(store, key=other).id}
    assert len(ids) == 2
    assert store.find_by_key("shop.fulfil", other).key == other
    assert [row.key for row in WorkflowInstance.objects.for_key("k")] == ["k"]
    assert [row.key for row in WorkflowInstance.objects.for_key(other)] == [other]


def test_a_key_belongs_to_its_workflow(store):
    assert create(store, key="k").id != create(store, key="k", name="shop.other").id


def test_two_starts_with_one_key_in_one_batch_are_one_instance(store):
    first, second, third = store.create([new_instance(key="k"), new_instance(key="k"), new_instance()])
    assert (first.created, second.created, third.created) == (True, False, True)
    assert first.id == second.id
    assert WorkflowInstance.objects.count() == 2


def test_the_same_id_twice_in_one_batch_is_one_instance(store):
    new = new_instance()
    first, second = store.create([new, new])
    assert (first.created, second.created, first.id) == (True, False, second.id)


def test_a_start_that_is_rolled_back_leaves_nothing(store):
    with pytest.raises(RuntimeError), transaction.atomic():  # noqa: PT012
        create(store, key="k", messages=[NewMessage(kind="signal", name="a", payload="1")])
        raise RuntimeError
    for model in (WorkflowInstance, WorkflowKey, Mailbox, Message):
        assert model.objects.count() == 0


def test_a_child_knows_its_root(store):
    parent = create(store).id
    child = create(store, parent_id=parent, parent_position="1").id
    grandchild = create(store, parent_id=child, parent_position="2").id
    assert {instance(child).root_id, instance(grandchild).root_id} == {parent}


def test_a_subject_finds_its_instances_and_must_be_saved(store, django_user_model):
    ana = django_user_model.objects.create(username="ana")
    bob = django_user_model.objects.create(username="bob")
    mine = create(store, subject=ana)
    create(store, subject=bob)
    assert [row.id for row in WorkflowInstance.objects.for_subject(ana)] == [mine.id]
    assert (instance(mine.id).subject_type, instance(mine.id).subject_id) == ("auth.user", str(ana.pk))
    with pytest.raises(BadValue, match="save it first"):
        create(store, subject=django_user_model(username="new"))


def test_starting_many_costs_the_same_statements_as_starting_one(store, costs):
    with costs() as one:
        store.create([new_instance()])
    with costs() as many:
        store.create([new_instance() for _ in range(15)])
    assert len(one) == len(many) == 3


def test_starting_with_a_key_costs_six_statements(store, costs):
    with costs() as sent:
        create(store, key="k")
    assert len(sent) == 6


@pytest.mark.django_db(transaction=True)
def test_o37_twenty_starts_with_one_key_at_one_moment_are_one_instance(store):
    results = at_once(*[lambda: create(store, key="order-7") for _ in range(20)])
    assert [result for result in results if isinstance(result, BaseException)] == []
    assert len({result.id for result in results}) == 1
    assert sum(result.created for result in results) == 1
    assert WorkflowInstance.objects.count() == Mailbox.objects.count() == 1


@pytest.mark.django_db(transaction=True)
def test_o37_starts_with_a_key_that_was_used_before_are_one_instance_too(store):
    """Its row is there: nobody waits at the INSERT of another."""
    used = create(store, key="order-7").id
    committed(store, used, state="COMPLETED", closes=True)
    results = at_once(*[lambda: create(store, key="order-7") for _ in range(12)])
    assert [result for result in results if isinstance(result, BaseException)] == []
    assert sum(result.created for result in results) == 1
    assert {result.id for result in results}.isdisjoint({used})
    assert WorkflowInstance.objects.count() == 2


@pytest.mark.django_db(transaction=True)
def test_o37_starts_in_open_transactions_wait_for_the_first_and_take_its_instance(store):
    def start():
        with transaction.atomic():
            return create(store, key="order-7")

    results = at_once(*[start for _ in range(8)])
    assert [result for result in results if isinstance(result, BaseException)] == []
    assert len({result.id for result in results}) == 1


@pytest.mark.django_db(transaction=True)
def test_a_start_delivered_twice_at_one_moment_is_one_instance(store):
    new = new_instance(id=uuid4())
    results = at_once(*[lambda: store.create([new])[0] for _ in range(8)])
    assert [result for result in results if isinstance(result, BaseException)] == []
    assert sum(result.created for result in results) == 1
    assert WorkflowInstance.objects.count() == 1
