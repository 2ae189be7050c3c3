"""Attempts that were claimed: ended once behind their token, heard of by heartbeats, let go within limits."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from django_app.models import StepAttempt, StepResult, WorkflowInstance
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
    end,
    entry,
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


@pytest.mark.django_db(transaction=True)
def test_of_many_ends_at_one_moment_one_is_stored(store):
    _, (step_id,) = running(store)
    step = claimed(store, step_id)
    results = at_once(*[partial(end, store, step, "SUCCEEDED", result=str(n)) for n in range(8)])
    assert [r for r in results if isinstance(r, BaseException)] == []
    assert [str(n) for n, r in enumerate(results) if r.ok] == [step_row(step_id).result]


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
