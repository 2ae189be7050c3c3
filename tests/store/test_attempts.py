"""Attempts: claimed once, ended once, each behind its token."""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import Any
from uuid import uuid4

import pytest

from django_app.models import StepAttempt, StepResult, WorkerLease, WorkflowInstance
from django_app.store import DjangoStore
from durable_celery import faults
from durable_celery.ports import AttemptRecord
from tests.store.making import (
    NOW,
    at,
    at_once,
    change,
    claim,
    claimed,
    committed,
    end,
    entry,
    lease,
    running,
    step_row,
    turn,
)

pytestmark = pytest.mark.django_db

GATHER: dict[str, Any] = {"position": "1", "kind": "gather", "name": "", "options": "", "look_at": None}


def record(outcome="failed", attempt=1) -> AttemptRecord:
    return AttemptRecord(
        attempt=attempt, outcome=outcome, failure="{}", result=None, started_at=NOW, finished_at=at(1), node="a"
    )


# -- claiming ------------------------------------------------------------------------------------------------------


def test_a_claim_counts_an_attempt_and_gives_what_the_body_needs(store, costs):
    _, (step_id,) = running(store, context={"trace": "1"})
    store.open_lease(owner := lease())
    with costs() as sent:
        won = store.claim(
            step_id, token="t", lease_id=owner.id, pid=42, now=at(5), close_at=at(35), look_at=at(15)
        )  # fmt: skip
    assert len(sent) == 2
    assert (won.args, won.workflow, won.context, won.last_heartbeat) == ("[[],{}]", "shop.fulfil", {"trace": "1"}, None)
    step = won.step
    assert (step.state, step.attempt, step.token, step.lease_id, step.pid) == ("RUNNING", 1, "t", owner.id, 42)
    assert (step.started_at, step.close_at, step.look_at) == (at(5), at(35), at(15))
    assert (step.group, step.join, step.failures, step.deaths) == ("", "", 0, 0)


def test_a_step_that_was_claimed_cannot_be_claimed_again(store):
    _, (step_id,) = running(store)
    assert claim(store, step_id) is not None
    assert claim(store, step_id) is None
    assert step_row(step_id).attempt == 1


@pytest.mark.parametrize("values", [
    {"paused_at": NOW}, {"state": "BLOCKED"}, {"state": "COMPLETED"}, {"cancel_requested_at": at(10)},
])  # fmt: skip
def test_o17_a_step_of_an_instance_that_does_not_run_is_not_claimed_and_no_attempt_counted(store, values):
    instance_id, (step_id,) = running(store)
    WorkflowInstance.objects.filter(pk=instance_id).update(**values)
    for _ in range(10):
        assert claim(store, step_id) is None
    row = step_row(step_id)
    assert (row.state, row.attempt, row.token) == ("SCHEDULED", 0, None)


def test_cleanup_scheduled_after_a_cancel_is_claimed(store):
    instance_id, _ = running(store)
    WorkflowInstance.objects.filter(pk=instance_id).update(cancel_requested_at=at(1.5))
    compensation = entry("1~", kind="compensation", shielded=True)
    (dispatch,) = committed(store, instance_id, compensation, state="COMPENSATING").dispatches
    assert claim(store, dispatch.step_id) is not None


@pytest.mark.parametrize("kind", ["timer", "signal", "gather"])
def test_only_what_runs_in_a_worker_is_claimed(store, kind):
    _, (row_id,) = running(store, entry(kind=kind))
    assert claim(store, row_id) is None


def test_a_retry_is_claimed_from_its_due_time_on(store):
    _, (step_id,) = running(store)
    end(store, claimed(store, step_id), "RETRYING", due_at=at(30))
    assert claim(store, step_id, now=at(29)) is None
    assert claimed(store, step_id, now=at(30)).attempt == 2


def test_a_dead_or_unknown_lease_claims_nothing(store):
    _, (step_id,) = running(store)
    store.open_lease(owner := lease())
    store.bury_lease(owner.id, NOW)
    assert claim(store, step_id, lease_id=owner.id) is None
    assert claim(store, step_id, lease_id=uuid4()) is None
    assert step_row(step_id).attempt == 0


def test_a_claim_that_the_process_did_not_survive_is_a_claim(store):
    _, (step_id,) = running(store)

    def fail(name):
        if name == "claim.after_commit":
            raise RuntimeError(name)

    faults.set_hook(fail)
    try:
        with pytest.raises(RuntimeError):
            claim(store, step_id)
    finally:
        faults.set_hook(None)
    assert (step_row(step_id).state, step_row(step_id).attempt) == ("RUNNING", 1)


def test_new_deadlines_need_the_current_token(store):
    _, (step_id,) = running(store)
    step = claimed(store, step_id)
    assert store.arm(step_id, step.token, close_at=at(50), look_at=at(40))
    assert not store.arm(step_id, "other", close_at=at(60), look_at=at(60))
    assert (step_row(step_id).close_at, step_row(step_id).look_at) == (at(50), at(40))


# -- ending --------------------------------------------------------------------------------------------------------


def test_the_end_of_an_attempt_is_written_in_full(store, costs):
    _, (step_id,) = running(store)
    step = claimed(store, step_id)
    with costs() as sent:
        changed = end(store, step, "FAILED", failures=1, deaths=2, expiries=3, resends=4, unknown_end=True)
    assert len(sent) == 1
    assert (changed.ok, changed.promoted) == (True, ())
    row = step_row(step_id)
    assert (row.state, row.failure, row.finished_at, row.look_at) == ("FAILED", '{"type":"E"}', at(20), at(22))
    assert (row.failures, row.deaths, row.expiries, row.resends, row.unknown_end) == (1, 2, 3, 4, True)
    assert (row.token, row.lease_id, row.pid, row.close_at) == (None, None, None, None)


def test_o10_the_result_of_a_superseded_attempt_changes_nothing(store):
    _, (step_id,) = running(store)
    stale = claimed(store, step_id)
    end(store, stale, "RETRYING", due_at=NOW)
    current = claimed(store, step_id)
    assert not end(store, stale, "SUCCEEDED", result='"A"').ok
    assert end(store, current, "SUCCEEDED", result='"B"').ok
    assert not end(store, stale, "FAILED").ok
    store.keep_superseded(step_id, record("superseded"))
    row = step_row(step_id)
    assert (row.state, row.result, row.attempt) == ("SUCCEEDED", '"B"', 2)
    assert [kept.outcome for kept in StepAttempt.objects.all()] == ["superseded"]


@pytest.mark.parametrize("token", [None, "another's"])
def test_a_result_needs_its_own_token_whatever_else_of_the_row_fits(store, token):
    _, (step_id,) = running(store)
    step = claimed(store, step_id)
    StepResult.objects.filter(pk=step_id).update(token=token)
    assert not end(store, step, "SUCCEEDED").ok
    row = step_row(step_id)
    assert (row.state, row.attempt, row.result) == ("RUNNING", step.attempt, None)


def test_an_attempt_that_failed_is_recorded_with_the_change(store):
    _, (step_id,) = running(store)
    step = claimed(store, step_id)
    store.change_step(step, change(step, "RETRYING", due_at=at(9), failures=1), record=record())
    assert not store.change_step(step, change(step, "RETRYING"), record=record()).ok
    kept = StepAttempt.objects.get()
    assert (kept.step_id, kept.attempt, kept.outcome, kept.failure, kept.node) == (step_id, 1, "failed", "{}", "a")
    assert (kept.started_at, kept.finished_at) == (NOW, at(1))


def test_a_failure_before_the_commit_leaves_the_attempt_running(store):
    _, (step_id,) = running(store)
    step = claimed(store, step_id)

    def fail(name):
        if name == "step.in_transaction":
            raise RuntimeError(name)

    faults.set_hook(fail)
    try:
        with pytest.raises(RuntimeError):
            store.change_step(step, change(step, "SUCCEEDED"), record=record())
    finally:
        faults.set_hook(None)
    assert (step_row(step_id).state, StepAttempt.objects.count()) == ("RUNNING", 0)


def test_a_row_read_by_the_sweep_is_changed_only_as_it_was_read(store):
    _, (step_id,) = running(store)
    (seen,) = store.due_steps(at(3), 10)
    assert claim(store, step_id) is not None
    assert not end(store, seen, "FAILED").ok
    assert step_row(step_id).state == "RUNNING"


# -- heartbeats ----------------------------------------------------------------------------------------------------


def test_a_heartbeat_keeps_its_details_for_the_next_attempt(store):
    _, (step_id,) = running(store)
    step = claimed(store, step_id)
    assert store.heartbeat(step_id, step.token, '"half"', at(4), at(14)).current
    assert store.heartbeat(step_id, step.token, None, at(5), None).current
    row = step_row(step_id)
    assert (row.heartbeat_at, row.last_heartbeat, row.look_at) == (at(5), '"half"', at(14))
    end(store, step, "RETRYING", due_at=NOW)
    again = claim(store, step_id)
    assert again is not None
    assert (again.last_heartbeat, again.step.heartbeat_at) == ('"half"', None)
    assert not store.heartbeat(step_id, step.token, '"late"', at(9), at(19)).current
    assert step_row(step_id).last_heartbeat == '"half"'


def test_a_heartbeat_learns_of_a_cancel_and_of_being_abandoned(store):
    instance_id, (first, second) = running(store, entry("1"), entry("2"))
    a, b = claimed(store, first), claimed(store, second)
    assert not store.heartbeat(first, a.token, None, at(4), None).cancel_requested
    WorkflowInstance.objects.filter(pk=instance_id).update(cancel_requested_at=at(5))
    beat = store.heartbeat(first, a.token, None, at(6), None)
    assert (beat.current, beat.cancel_requested) == (True, True)
    WorkflowInstance.objects.filter(pk=instance_id).update(cancel_requested_at=None)
    turn(store, instance_id, withdrawn=[second])
    beat = store.heartbeat(second, b.token, None, at(6), None)
    assert (beat.current, beat.cancel_requested) == (True, True)


# -- limits --------------------------------------------------------------------------------------------------------


def limited(store: DjangoStore, size: int = 4, limit: int = 2, options: str = "", **changes: Any) -> Any:
    members = [
        entry(f"1.{n}", group="1", join="1", limited=True, state="SCHEDULED" if n < limit else "HELD",
              look_at=at(3) if n < limit else None, **changes)
        for n in range(size)
    ]  # fmt: skip
    return running(store, entry(**{**GATHER, "options": options, "members": size}), *members)


def test_the_end_of_a_member_lets_the_next_held_one_go(store):
    _, (_, first, second, third, fourth) = limited(store, options="", queue="vip")
    (promoted,) = end(store, claimed(store, first)).promoted
    assert (promoted.step_id, promoted.queue, promoted.close_after, promoted.due_at) == (third, "vip", 30, None)
    row = step_row(third)
    assert (row.state, row.scheduled_at, row.look_at) == ("SCHEDULED", at(20), at(23))
    assert step_row(fourth).state == "HELD"
    assert [d.step_id for d in end(store, claimed(store, second)).promoted] == [fourth]
    assert end(store, claimed(store, third)).promoted == ()


def test_a_member_let_go_has_its_time_in_the_queue_from_then_on(store):
    members_options = '{"schedule_to_start": 2}'
    _, ids = running(
        store, entry(**GATHER),
        *[entry(f"1.{n}", group="1", limited=True, state=s, options=members_options, look_at=None)
          for n, s in enumerate(["SCHEDULED", "HELD"])],
    )  # fmt: skip
    end(store, claimed(store, ids[1]))
    assert (step_row(ids[2]).start_by_at, step_row(ids[2]).look_at) == (at(22), at(22))


@pytest.mark.parametrize(
    ("options", "goes_on"),
    [
        ("", False),
        ('{"return_exceptions":true}', True),
        ('{"needed":1}', True),
        ('{"tolerate":1}', True),
        ('{"tolerate":0}', False),
    ],
)
def test_after_a_failure_a_member_is_let_go_only_if_failures_stand(store, options, goes_on):
    _, (_, first, second, third, _fourth) = limited(store, options=options)
    assert bool(end(store, claimed(store, first), "FAILED").promoted) == goes_on
    assert bool(end(store, claimed(store, second)).promoted) == goes_on
    assert step_row(third).state == ("SCHEDULED" if goes_on else "HELD")


def test_a_retry_of_a_member_lets_nobody_go(store):
    _, (_, first, *_) = limited(store)
    assert end(store, claimed(store, first), "RETRYING", due_at=at(9)).promoted == ()


@pytest.mark.django_db(transaction=True)
def test_members_that_end_at_one_moment_each_let_another_go(store):
    _, (_, *members) = limited(store, size=8, limit=4)
    steps = [claimed(store, pk) for pk in members[:4]]
    results = at_once(*[partial(end, store, step) for step in steps])
    assert [r for r in results if isinstance(r, BaseException)] == []
    assert sorted(d.step_id for r in results for d in r.promoted) == members[4:]


# -- races ---------------------------------------------------------------------------------------------------------


@pytest.mark.django_db(transaction=True)
def test_of_many_claims_at_one_moment_one_wins(store):
    _, (step_id,) = running(store)
    results = at_once(*[lambda: claim(store, step_id) for _ in range(10)])
    assert [r for r in results if isinstance(r, BaseException)] == []
    assert sum(r is not None for r in results) == 1
    assert step_row(step_id).attempt == 1


@pytest.mark.django_db(transaction=True)
def test_of_many_ends_at_one_moment_one_is_stored(store):
    _, (step_id,) = running(store)
    step = claimed(store, step_id)
    results = at_once(*[partial(end, store, step, "SUCCEEDED", result=str(n)) for n in range(8)])
    assert [r for r in results if isinstance(r, BaseException)] == []
    assert [str(n) for n, r in enumerate(results) if r.ok] == [step_row(step_id).result]


@pytest.mark.django_db(transaction=True)
def test_a_claim_racing_its_withdrawal_is_claimed_and_abandoned_or_cancelled(store):
    for _ in range(5):
        instance_id, (step_id,) = running(store)
        won, withdrawn = at_once(partial(claim, store, step_id), partial(turn, store, instance_id, withdrawn=[step_id]))
        assert withdrawn is not None
        assert not isinstance(won, BaseException)
        row = step_row(step_id)
        assert (row.state, row.attempt) == (("ABANDONED", 1) if won is not None else ("CANCELLED", 0))


def test_dispatches_are_of_rows_that_may_be_claimed(store, costs):
    _, (first, second, timer, third) = running(
        store, entry("1", queue="a"), entry("2"), entry("3", kind="timer"), entry("4", options="")
    )
    end(store, claimed(store, second), "RETRYING", due_at=at(9))
    with costs() as sent:
        found = store.dispatches([third, timer, second, first, 10**9])
    assert len(sent) == 1
    assert [(d.step_id, d.queue, d.due_at, d.close_after, d.look_after) for d in found] == [
        (first, "a", None, 30, 10), (second, "", at(9), 30, 10), (third, "", None, None, None),
    ]  # fmt: skip
    assert claim(store, third) is not None
    assert store.dispatches([third]) == []


def test_a_step_that_this_worker_does_not_know_is_left_and_said(store):
    instance_id, (step_id,) = running(store)
    store.note_step_unknown(step_id, "a worker that knows step 'x'", at(30))
    row = step_row(step_id)
    assert (row.state, row.attempt, row.look_at) == ("SCHEDULED", 0, at(30))
    assert store.find(instance_id).waiting_for == "a worker that knows step 'x'"
    claim(store, step_id)
    store.note_step_unknown(step_id, "late", at(60))
    assert store.find(instance_id).waiting_for != "late"
    assert dataclasses.asdict(store.open_steps(instance_id)[0])["state"] == "RUNNING"
    assert StepResult.objects.count() == 1
    assert WorkerLease.objects.count() == 0
