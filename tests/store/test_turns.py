"""Committing a turn: all of it or nothing, once for a revision."""

from __future__ import annotations

import re

import pytest

from django_app.models import Message, StepResult, WorkflowInstance
from durable_celery import faults
from durable_celery.core.journal import events
from durable_celery.ports import Settled, TurnCommit
from tests.store.making import (
    NOW,
    SIGNAL,
    at,
    at_once,
    claimed,
    commit_of,
    committed,
    create,
    end,
    entry,
    instance,
    running,
    step_row,
    turn,
)

pytestmark = pytest.mark.django_db


def test_a_turn_writes_the_instance_and_gives_what_is_to_be_sent(store):
    instance_id = create(store).id
    done = committed(
        store, instance_id,
        entry("1", queue="vip", compensation='{"name":"undo"}', start_by_at=at(9), end_by_at=at(99)),
        entry("2", kind="timer", name="", due_at=at(60), look_at=at(60)),
        entry("3", state="HELD", look_at=None),
        waiting_for="step shop.charge", status_text="charging", attributes={"paid": False}, fingerprint="f" * 16,
        markers={"patch:Ä": "true"}, look_at=at(7),
    )  # fmt: skip
    (dispatch,) = done.dispatches
    row = step_row(dispatch.step_id)
    assert (row.position, row.kind, row.queue, row.scheduled_at, row.look_at) == ("1", "step", "vip", at(1), at(3))
    assert (row.start_by_at, row.end_by_at, row.compensation) == (at(9), at(99), '{"name":"undo"}')
    assert (dispatch.name, dispatch.queue, dispatch.priority, dispatch.due_at) == ("shop.charge", "vip", 3, None)
    assert (dispatch.close_after, dispatch.look_after) == (30, 10)
    found = instance(instance_id)
    assert (found.state, found.revision, found.turn, found.turn_at) == ("WAITING", 1, 1, at(1))
    assert (found.waiting_for, found.status_text, found.attributes) == ("step shop.charge", "charging", {"paid": False})
    assert (found.started_at, found.waiting_since, found.fingerprint, found.look_at) == (at(1), at(1), "f" * 16, at(7))
    loaded = store.load(instance_id)
    assert [(e.position, e.kind, e.state, e.args) for e in loaded.journal.entries] == [
        ("1", "step", "SCHEDULED", ""), ("2", "timer", "SCHEDULED", ""), ("3", "step", "HELD", ""),
    ]  # fmt: skip
    assert loaded.journal.markers == {"patch:Ä": "true"}
    assert [e.args for e in store.load(instance_id, args=True).journal.entries] == ["[[],{}]"] * 3


def test_a_turn_with_a_stale_revision_changes_nothing(store):
    instance_id, _ = running(store)
    stale = commit_of(instance_id, revision=0, entries=[entry("2")], markers={"a": "1"}, status_text="late")
    assert store.commit_turn(stale) is None
    assert StepResult.objects.count() == 1
    assert (instance(instance_id).revision, instance(instance_id).status_text) == (1, "")


def test_a_sequential_step_costs_three_statements_whatever_the_history(store, costs):
    instance_id, (first,) = running(store)
    end(store, claimed(store, first))
    for number in range(2, 6):
        row = StepResult.objects.get(position=str(number - 1))
        commit = commit_of(instance_id, entries=[entry(str(number))], taken_entries={row.id: 0})
        with costs() as sent:
            done = store.commit_turn(commit)
            assert done is not None
            (dispatch,) = done.dispatches
        assert len(sent) == 3
        heads = [re.sub(r"[`\"]", "", sql)[:45] for sql in sent]
        assert heads[0].startswith("UPDATE durable_celery_workflowinstance")
        assert heads[1].startswith("UPDATE durable_celery_stepresult")
        assert heads[2].startswith("INSERT INTO durable_celery_stepresult")
        end(store, claimed(store, dispatch.step_id))


def test_loading_costs_two_queries_and_one_each_for_messages_and_markers(store, costs):
    instance_id, _ = running(store, *[entry(str(n)) for n in range(1, 30)])
    with costs() as plain:
        store.load(instance_id)
    store.send(instance_id, SIGNAL, NOW)
    turn(store, instance_id, markers={"a": "1"})
    with costs() as full:
        loaded = store.load(instance_id)
    assert (len(plain), len(full)) == (2, 4)
    assert (len(loaded.journal.messages), loaded.journal.markers) == (1, {"a": "1"})
    assert loaded.journal.instance_id == str(instance_id)


def test_what_a_turn_took_in_is_read_back_in_its_order(store):
    instance_id, ids = running(store, *[entry(f"1.{n}", group="1", join="1") for n in range(4)])
    for step_id in ids:
        end(store, claimed(store, step_id))
    store.send(instance_id, SIGNAL, NOW)
    message = Message.objects.get()
    order = {ids[2]: 0, ids[0]: 1, ids[3]: 3, ids[1]: 4}
    turn(store, instance_id, taken_entries=order, taken_messages={message.id: 2})
    replayed = events(store.load(instance_id).journal, turn=3, now=at(99))
    assert [getattr(e.entry or e.message, "id", None) for e in replayed] == [ids[2], ids[0], message.id, ids[3], ids[1]]
    assert {(e.turn, e.at) for e in replayed} == {(2, at(2))}
    assert {step_row(pk).look_at for pk in ids} | {Message.objects.get().look_at} == {None}


def test_taking_many_outcomes_costs_few_statements(store, costs):
    instance_id, ids = running(store, *[entry(f"1.{n}", group="1", join="1") for n in range(300)])
    commit = commit_of(instance_id, taken_entries={pk: order for order, pk in enumerate(reversed(ids))})
    with costs() as sent:
        store.commit_turn(commit)
    assert len(sent) == 2
    assert list(StepResult.objects.order_by("taken_order").values_list("id", flat=True)) == list(reversed(ids))


def test_a_timer_that_fired_is_settled_and_taken_in_one_statement(store, costs):
    instance_id, (timer,) = running(store, entry(kind="timer", due_at=at(60), look_at=at(60)))
    ended = Settled(entry_id=timer, state="SUCCEEDED", finished_at=at(60))
    commit = commit_of(instance_id, settled=[ended], taken_entries={timer: 0})
    with costs() as sent:
        store.commit_turn(commit)
    assert len(sent) == 2
    row = step_row(timer)
    assert (row.state, row.finished_at, row.taken_turn, row.look_at) == ("SUCCEEDED", at(60), 2, None)


def test_a_wait_that_a_message_answered_is_settled_without_being_taken(store):
    instance_id, (wait, gather) = running(
        store, entry("1", kind="signal", look_at=None), entry("2", kind="gather", look_at=None)
    )
    turn(store, instance_id, settled=[
        Settled(entry_id=wait, state="SUCCEEDED", result="1", finished_at=at(2)),
        Settled(entry_id=gather, state="FAILED", failure="{}", finished_at=at(2)),
    ])  # fmt: skip
    assert (step_row(wait).state, step_row(wait).result, step_row(wait).taken_turn) == ("SUCCEEDED", "1", None)
    assert (step_row(gather).state, step_row(gather).failure) == ("FAILED", "{}")
    assert not store.has_news(instance_id)


def test_a_row_that_ended_in_the_turn_that_asked_for_it_is_inserted_as_ended(store):
    instance_id = create(store).id
    done = committed(
        store, instance_id,
        entry("1", kind="signal", state="SUCCEEDED", result="1", finished_at=at(1), look_at=None),
        entry("2", state="CANCELLED", abandoned=True, finished_at=at(1), look_at=None),
    )  # fmt: skip
    assert done.dispatches == []
    first, second = store.load(instance_id).journal.entries
    assert (first.state, first.result, first.finished_at) == ("SUCCEEDED", "1", at(1))
    assert (second.state, second.abandoned, second.finished_at) == ("CANCELLED", True, at(1))
    assert not store.has_news(instance_id)


def test_a_blocked_turn_appends_nothing_and_remembers_who_tried(store):
    instance_id, (step_id,) = running(store)
    before = StepResult.objects.values().get()
    for fingerprint in ("a" * 16, "b" * 16):
        assert committed(
            store, instance_id, entry("2"), state="BLOCKED", fingerprint=fingerprint, failure="{}",
            waiting_for="blocked: ValueError", withdrawn=[step_id], markers={"m": "1"},
        ).dispatches == ()  # fmt: skip
    row = store.find(instance_id)
    assert (row.state, row.turn, row.revision, row.failure) == ("BLOCKED", 1, 3, "{}")
    assert (row.waiting_for, row.blocked_by) == ("blocked: ValueError", ("a" * 16, "b" * 16))
    assert StepResult.objects.values().get() == before
    assert store.load(instance_id).journal.markers == {}
    turn(store, instance_id)
    assert (store.find(instance_id).state, store.find(instance_id).blocked_by) == ("WAITING", ())
    assert store.find(instance_id).failure is None


def test_writing_what_it_waits_for_leaves_the_revision(store):
    instance_id, _ = running(store)
    store.note_waiting(instance_id, "a worker that knows it")
    store.postpone_instance(instance_id, at(30))
    row = instance(instance_id)
    assert (row.waiting_for, row.revision, row.look_at) == ("a worker that knows it", 1, at(30))
    turn(store, instance_id, state="COMPLETED", closes=True)
    store.note_waiting(instance_id, "late")
    store.postpone_instance(instance_id, at(99))
    assert (instance(instance_id).waiting_for, instance(instance_id).look_at) == ("", None)


def test_news_are_outcomes_messages_and_due_timers_that_no_turn_took(store, costs):
    instance_id, (step_id, other) = running(
        store, entry("1"), entry("2", kind="timer", due_at=at(10**7), look_at=at(10**7))
    )
    assert not store.has_news(instance_id)
    step = claimed(store, step_id)
    assert not store.has_news(instance_id)
    end(store, step)
    with costs() as sent:
        assert store.has_news(instance_id)
    assert len(sent) == 1
    turn(store, instance_id, taken_entries={step_id: 0})
    assert not store.has_news(instance_id)
    StepResult.objects.filter(pk=other).update(due_at=at(-(10**7)))
    assert store.has_news(instance_id)
    turn(
        store,
        instance_id,
        settled=[Settled(entry_id=other, state="SUCCEEDED", finished_at=NOW)],
        taken_entries={other: 0},
    )
    store.send(instance_id, SIGNAL, NOW)
    assert store.has_news(instance_id)
    turn(store, instance_id, taken_messages={Message.objects.get().id: 0})
    assert not store.has_news(instance_id)


def test_an_outcome_is_no_news_while_another_member_of_its_join_runs(store, costs):
    instance_id, (first, second, held, _gather) = running(
        store,
        *[entry(f"1.{n}", group="1", join="1", state=s) for n, s in enumerate(["SCHEDULED", "SCHEDULED", "HELD"])],
        entry("1", kind="gather", look_at=None),
    )  # fmt: skip
    end(store, claimed(store, first), "FAILED")
    with costs() as sent:
        assert not store.has_news(instance_id, "1")
    assert len(sent) == 1
    assert store.has_news(instance_id)
    end(store, claimed(store, second))
    assert step_row(held).state == "HELD"
    assert store.has_news(instance_id, "1")


def test_find_gives_the_newest_run_of_a_chain(store):
    first = create(store).id
    second = create(store, created_at=at(9)).id
    WorkflowInstance.objects.filter(pk=second).update(chain_id=first, run_number=2)
    assert store.find(first).id == store.find(second).id == second
    assert store.find(create(store).id) is not None


def test_what_is_not_there_is_none(store):
    gone = create(store).id
    WorkflowInstance.objects.all().delete()
    assert store.find(gone) is store.load(gone) is store.find_by_key("shop.fulfil", "k") is None
    assert store.commit_turn(TurnCommit(instance_id=gone, revision=0, turn=1, now=NOW, state="WAITING")) is None
    assert not store.has_news(gone)


def test_history_is_in_order_of_position_with_compensations_last(store):
    instance_id, _ = running(store, *[entry(p) for p in ("10", "2.1", "2.0", "1~", "2", "3~")])
    rows = store.history(instance_id)
    assert [row["position"] for row in rows] == ["2", "2.0", "2.1", "10", "3~", "1~"]
    assert set(rows[0]) == {
        "position", "kind", "name", "state", "args", "result", "error", "attempts", "scheduled_at", "started_at",
        "finished_at", "turn",
    }  # fmt: skip
    assert [s.position for s in store.open_steps(instance_id)] == ["10", "2.1", "2.0", "1~", "2", "3~"]


def test_a_failure_inside_a_turn_leaves_nothing_of_it(store):
    instance_id, (step_id,) = running(store)

    def fail(name):
        if name == "turn.in_transaction":
            raise RuntimeError(name)

    faults.set_hook(fail)
    try:
        with pytest.raises(RuntimeError):
            turn(store, instance_id, entry("2"), withdrawn=[step_id], markers={"a": "1"})
    finally:
        faults.set_hook(None)
    assert (instance(instance_id).revision, StepResult.objects.count(), step_row(step_id).state) == (1, 1, "SCHEDULED")


@pytest.mark.django_db(transaction=True)
def test_of_many_turns_at_one_moment_one_is_committed(store):
    instance_id, _ = running(store)
    commit = commit_of(instance_id, entries=[entry("2")])
    results = at_once(*[lambda: store.commit_turn(commit) for _ in range(8)])
    assert [r for r in results if isinstance(r, BaseException)] == []
    assert sum(r is not None for r in results) == 1
    assert (instance(instance_id).revision, StepResult.objects.count()) == (2, 2)
