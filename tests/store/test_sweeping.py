"""What the tick asks for: rows whose time has come, leases, and who ticks."""

from __future__ import annotations

from datetime import timedelta
from uuid import uuid4

import pytest
from django.db import connection

from django_app.models import EngineHeartbeat, StepResult, WorkflowInstance
from tests.store.making import (
    NOW,
    at,
    at_once,
    claim,
    claimed,
    create,
    end,
    entry,
    instance,
    lease,
    new_instance,
    running,
    step_row,
    turn,
)

pytestmark = pytest.mark.django_db

SECOND = timedelta(seconds=1)


# -- rows ----------------------------------------------------------------------------------------------------------


def test_rows_whose_time_has_come_are_found_oldest_first(store, costs):
    _, ids = running(
        store, entry("1", look_at=at(9)), entry("2", kind="timer", look_at=at(4)), entry("3", look_at=at(30)),
        entry("4", look_at=None),
    )  # fmt: skip
    with costs() as sent:
        found = store.due_steps(at(10), 10)
    assert len(sent) == 1
    assert [(s.id, s.kind) for s in found] == [(ids[1], "timer"), (ids[0], "step")]
    assert len(store.due_steps(at(10), 1)) == 1
    assert store.next_look() == at(4)
    assert list(StepResult.objects.due(at(10))) == [step_row(ids[1]), step_row(ids[0])]


def test_an_outcome_nobody_took_in_is_found_until_it_is(store):
    instance_id, (step_id,) = running(store)
    end(store, claimed(store, step_id))
    assert store.due_steps(at(21), 10) == []
    assert [s.id for s in store.due_steps(at(22), 10)] == [step_id]
    assert list(StepResult.objects.outcomes()) == [step_row(step_id)]
    turn(store, instance_id, taken_entries={step_id: 0})
    assert store.due_steps(at(1000), 10) == []
    assert list(StepResult.objects.outcomes()) == []


@pytest.mark.parametrize("values", [{"paused_at": NOW}, {"state": "BLOCKED"}, {"state": "COMPLETED"}])
def test_the_sweep_leaves_paused_blocked_and_closed_instances_alone(store, values):
    instance_id, _ = running(store, look_at=at(5))
    WorkflowInstance.objects.filter(pk=instance_id).update(look_at=at(5), **values)
    assert store.due_steps(at(100), 10) == []
    assert store.due_instances(at(100), 10) == []
    assert store.next_look() is None


def test_instances_whose_time_has_come_are_found_without_their_big_texts(store, costs):
    late, early = create(store, look_at=at(9)).id, create(store, look_at=at(5)).id
    create(store, look_at=at(60))
    with costs() as sent:
        found = store.due_instances(at(10), 10)
    assert len(sent) == 1
    assert [(row.id, row.args, row.state) for row in found] == [(early, "", "PENDING"), (late, "", "PENDING")]
    assert '"args"' not in sent[0].replace("`", '"')
    assert store.next_look() == at(5)


def test_of_two_sweeps_with_one_row_in_hand_one_acts(store):
    _, (step_id,) = running(store)
    (mine,), (theirs,) = store.due_steps(at(3), 10), store.due_steps(at(3), 10)
    assert store.postpone_step(mine, at(9), resends=1)
    assert not store.postpone_step(theirs, at(10), resends=1)
    assert (step_row(step_id).look_at, step_row(step_id).resends) == (at(9), 1)


def test_o12_a_sweep_with_an_old_list_does_nothing(store):
    _, (step_id,) = running(store)
    (seen,) = store.due_steps(at(3), 10)
    end(store, claimed(store, step_id))
    assert not store.postpone_step(seen, at(50))
    assert not end(store, seen, "FAILED").ok
    assert (step_row(step_id).state, step_row(step_id).attempt) == ("SUCCEEDED", 1)


@pytest.mark.django_db(transaction=True)
def test_of_two_sweeps_at_one_moment_one_acts(store):
    _, (step_id,) = running(store)
    (seen,) = store.due_steps(at(3), 10)
    results = at_once(*[lambda n=n: store.postpone_step(seen, at(9 + n)) for n in range(6)])
    assert sorted(results) == [False] * 5 + [True]
    assert step_row(step_id).look_at == at(9 + results.index(True))


def test_blocked_instances_are_found_once_for_each_new_version_of_their_code(store):
    first, _ = running(store)
    other, _ = running(store, name="shop.other")
    turn(store, first, state="BLOCKED", fingerprint="a" * 16)
    turn(store, other, state="BLOCKED", fingerprint="a" * 16)
    assert store.blocked({("shop.fulfil", 1): "a" * 16}, 10) == []
    assert store.blocked({("shop.fulfil", 2): "b" * 16}, 10) == []
    assert store.blocked({("shop.FULFIL", 1): "b" * 16}, 10) == []
    assert store.blocked({("shop.fulfil", 1): "b" * 16}, 10) == [first]
    assert set(store.blocked({(name, 1): "b" * 16 for name in ("shop.fulfil", "shop.other")}, 10)) == {first, other}
    many = {(f"shop.{n}", 1): "b" * 16 for n in range(500)} | {("shop.fulfil", 1): "b" * 16}
    assert store.blocked(many, 10) == [first]
    assert store.blocked({}, 10) == []
    turn(store, first, state="BLOCKED", fingerprint="b" * 16)
    assert store.blocked({("shop.fulfil", 1): "b" * 16}, 10) == []


@pytest.mark.parametrize(
    ("ask", "index"), [("due_steps", "durable_step_look"), ("due_instances", "durable_instance_look")]
)
def test_the_sweep_reads_by_an_index_and_touches_no_parked_row(store, costs, ask, index):
    store.create([new_instance(look_at=at(10**6)) for _ in range(300)])
    running(store, *[entry(str(n), look_at=None) for n in range(1, 400)], entry("400", look_at=at(3)), look_at=at(3))
    refresh_statistics()
    with costs() as sent:
        getattr(store, ask)(at(5), 200)
    assert index in plan_of(sent[0])


def refresh_statistics() -> None:
    if connection.vendor != "mysql":  # there it commits, and InnoDB counts by itself
        with connection.cursor() as cursor:
            cursor.execute("ANALYZE")


def plan_of(statement: str) -> str:
    with connection.cursor() as cursor:
        cursor.execute(("EXPLAIN QUERY PLAN " if connection.vendor == "sqlite" else "EXPLAIN ") + statement)
        return str(cursor.fetchall())


# -- leases --------------------------------------------------------------------------------------------------------


def test_a_lease_is_kept_as_it_was_opened(store):
    store.open_lease(mine := lease(start_ticks=2**40))
    assert store.leases() == [mine]
    assert store.renew_lease(mine.id, at(20))
    assert store.leases()[0].expires_at == at(20)
    store.close_lease(mine.id)
    assert store.leases() == []
    assert not store.renew_lease(mine.id, at(30))


def test_a_dead_lease_is_never_renewed_and_buried_once(store):
    store.open_lease(mine := lease())
    assert store.bury_lease(mine.id, at(1))
    assert not store.bury_lease(mine.id, at(2))
    assert not store.renew_lease(mine.id, at(20))
    assert store.leases() == []


def test_a_lease_is_buried_by_expiry_only_if_it_was_not_renewed(store):
    store.open_lease(mine := lease(expires_at=at(10)))
    assert not store.bury_lease(mine.id, at(10), expired_by=at(10))
    store.renew_lease(mine.id, at(20))
    assert not store.bury_lease(mine.id, at(11), expired_by=at(11))
    assert store.bury_lease(mine.id, at(21), expired_by=at(21))


def test_claims_of_a_lease_of_a_child_and_of_the_dead(store):
    instance_id, ids = running(store, *[entry(str(n)) for n in range(1, 6)])
    living, dead = lease(), lease(pid=8)
    for each in (living, dead):
        store.open_lease(each)
    for step_id, owner in zip(ids, [living.id, dead.id, dead.id, living.id, None], strict=True):
        assert claim(store, step_id, lease_id=owner) is not None
    StepResult.objects.filter(pk=ids[2]).update(pid=9)
    turn(store, instance_id, withdrawn=[ids[3]])
    assert [s.id for s in store.claims(lease_id=living.id)] == [ids[0], ids[3]]
    assert [s.id for s in store.claims(lease_id=dead.id, pid=9)] == [ids[2]]
    assert store.claims() == []
    store.bury_lease(dead.id, NOW)
    assert [s.id for s in store.claims()] == [ids[1], ids[2]]
    assert len(store.claims(limit=1)) == 1
    end(store, store.claims()[0], "RETRYING", due_at=NOW)
    assert [s.id for s in store.claims()] == [ids[2]]


def test_o11_claims_are_found_though_the_lease_row_is_gone(store):
    _, (step_id,) = running(store)
    store.open_lease(mine := lease())
    claim(store, step_id, lease_id=mine.id)
    store.close_lease(mine.id)
    assert [s.id for s in store.claims()] == [step_id]


def test_claims_of_a_closed_instance_are_found_too(store):
    instance_id, (step_id,) = running(store)
    store.open_lease(mine := lease())
    step = claimed(store, step_id, lease_id=mine.id)
    turn(store, instance_id, state="FAILED", closes=True, withdrawn=[step_id])
    assert (step_row(step_id).state, step_row(step_id).look_at) == ("ABANDONED", None)
    store.bury_lease(mine.id, NOW)
    (orphan,) = store.claims()
    assert (orphan.id, orphan.state, orphan.token) == (step_id, "ABANDONED", step.token)
    assert end(store, orphan, "FAILED").ok
    assert store.claims() == []
    assert instance(instance_id).state == "FAILED"


# -- ticks ---------------------------------------------------------------------------------------------------------


def test_one_tick_is_won_in_an_interval(store):
    assert store.take_tick(at(0), SECOND, "a") == at(0)
    assert store.take_tick(at(0.5), SECOND, "b") is None
    assert store.take_tick(at(0.95), SECOND, "b") == at(0)
    assert EngineHeartbeat.objects.get().last_tick_by == "b"


def test_health_counts_from_the_end_of_the_last_gap(store):
    for second in range(4):
        assert store.take_tick(at(second), SECOND, "a") == at(0)
    assert store.take_tick(at(8), SECOND, "a") == at(0)
    assert store.take_tick(at(14), SECOND, "a") == at(14)
    assert store.take_tick(at(15), SECOND, "a") == at(14)


def test_a_tick_from_a_clock_that_was_set_back_stops_nobody(store):
    store.take_tick(at(10_000), SECOND, "a")
    assert store.take_tick(at(0), SECOND, "b") == at(0)


@pytest.mark.django_db(transaction=True)
def test_of_many_first_ticks_at_one_moment_one_is_won(store):
    results = at_once(*[lambda n=n: store.take_tick(at(0), SECOND, str(n)) for n in range(8)])
    assert [r for r in results if r is not None] == [at(0)]
    assert EngineHeartbeat.objects.count() == 1


def test_a_lease_that_never_was_is_not_buried(store):
    assert not store.bury_lease(uuid4(), NOW)
