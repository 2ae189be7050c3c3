"""Claims: of a row that may be claimed, by a lease that lives, once."""

from __future__ import annotations

import dataclasses
from functools import partial
from uuid import uuid4

import pytest

from django_app.models import StepResult, WorkerLease, WorkflowInstance
from durable_celery import faults
from tests.store.making import (
    NOW,
    at,
    at_once,
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


# -- races ---------------------------------------------------------------------------------------------------------


@pytest.mark.django_db(transaction=True)
def test_of_many_claims_at_one_moment_one_wins(store):
    _, (step_id,) = running(store)
    results = at_once(*[lambda: claim(store, step_id) for _ in range(10)])
    assert [r for r in results if isinstance(r, BaseException)] == []
    assert sum(r is not None for r in results) == 1
    assert step_row(step_id).attempt == 1


@pytest.mark.django_db(transaction=True)
def test_a_claim_racing_its_withdrawal_is_claimed_and_abandoned_or_cancelled(store):
    for _ in range(5):
        instance_id, (step_id,) = running(store)
        won, withdrawn = at_once(partial(claim, store, step_id), partial(turn, store, instance_id, withdrawn=[step_id]))
        assert withdrawn is not None
        assert not isinstance(won, BaseException)
        row = step_row(step_id)
        assert (row.state, row.attempt) == (("ABANDONED", 1) if won is not None else ("CANCELLED", 0))
