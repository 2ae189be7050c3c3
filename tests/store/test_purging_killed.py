"""Purging: killed half-way, two at once, and what it costs."""

from __future__ import annotations

from datetime import timedelta
from types import SimpleNamespace
from uuid import UUID

import pytest

from django_app.models import (
    Mailbox,
    Message,
    StepAttempt,
    StepResult,
    WorkerLease,
    WorkflowInstance,
)
from django_app.store import DjangoStore, purging
from durable_celery import InstanceNotFound, NotRetryable, faults
from durable_celery import purging as purges
from durable_celery.purging import HOLD, PurgeReport, purge
from tests.pump import Killed, Pump, counted
from tests.store.making import at_once
from tests.store.purged import (
    DAY,
    _no_faults_left,  # noqa: F401
    fails,
    leaf,
    left,
    run_whole,
    whole,
)
from tests.store.test_sweeping import plan_of, refresh_statistics

pytestmark = pytest.mark.django_db(transaction=True)


# -- killed, and at once -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("batch", [1, 2, 3, 5, 6, 7])
def test_a_purge_that_is_killed_anywhere_is_gone_on_with(
    pump: Pump, monkeypatch: pytest.MonkeyPatch, batch: int
) -> None:
    """Two batches forget the key, four remove a run each, one finds nothing more."""
    monkeypatch.setattr(purging, "INSTANCES", 1)
    old = run_whole(pump)
    pump.now += 31 * DAY
    young = whole.start(0)
    young.signal("go")
    pump.finish()
    kept = StepResult.objects.filter(instance_id=young.id).count()
    reached: list[str] = []

    def kill(point: str) -> None:
        reached.append(point)
        if reached.count("purge.before_batch") == batch:
            raise Killed

    faults.set_hook(kill)
    with pytest.raises(Killed):
        purge()
    faults.set_hook(None)
    assert WorkflowInstance.objects.filter(root_id=old).count() == 4 - max(0, batch - 3)
    if batch >= 3:
        with pytest.raises(InstanceNotFound):
            whole.get(key="order-1")
    purge()
    assert set(WorkflowInstance.objects.values_list("root_id", flat=True)) == {UUID(young.id)}
    assert StepResult.objects.filter(instance_id=young.id).count() == kept
    assert not StepAttempt.objects.exists()
    assert Mailbox.objects.exclude(opened_by=purging.DOOMED).count() == Mailbox.objects.count() == 2


def test_many_rows_of_one_instance_go_in_transactions_of_their_own(pump: Pump, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(purging, "ROWS", 3)
    root = run_whole(pump)
    StepResult.objects.bulk_create(
        StepResult(instance_id=root, position=f"x{n}", kind="step", state="SUCCEEDED", scheduled_at=pump.now)
        for n in range(20)
    )
    steps = StepResult.objects.count()
    pump.now += 31 * DAY
    store = DjangoStore("default")
    found = store.ended_roots(pump.now - DAY, None, 10)
    whole_ones = store.doom([one.root_id for one in found], pump.now - DAY)
    removed = []
    while (some := store.remove_some(whole_ones)) is not None:
        removed.append(some)
    assert max(some.steps for some in removed) == 3
    assert sum(some.steps for some in removed) == steps
    assert not any(left().values()), left()


def test_what_is_being_purged_cannot_be_retried(pump: Pump) -> None:
    fails["left"] = 2
    handle = leaf.start(1)
    pump.finish()
    assert WorkflowInstance.objects.get().state == "FAILED"
    pump.now += 31 * DAY
    store = DjangoStore("default")
    assert store.doom([UUID(handle.id)], pump.now - DAY) == {UUID(handle.id)}
    with pytest.raises(NotRetryable, match="being purged"):
        handle.retry()
    assert WorkflowInstance.objects.get().state == "FAILED"


def test_what_was_retried_is_not_purged(pump: Pump) -> None:
    fails["left"] = 2
    handle = leaf.start(1)
    pump.finish()
    pump.now += 31 * DAY
    found = DjangoStore("default").ended_roots(pump.now - DAY, None, 10)
    handle.retry()
    assert DjangoStore("default").doom([one.root_id for one in found], pump.now - DAY) == set()
    pump.finish()
    assert handle.result() == 2


def test_two_purges_at_once_remove_each_row_once(pump: Pump, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(purging, "INSTANCES", 1)
    for number in range(3):
        run_whole(pump, key=f"order-{number}")
    pump.now += 31 * DAY
    reports = at_once(purge, purge)
    assert sum(report.instances for report in reports) == 12, reports
    assert not any(left().values()), left()


def test_a_purge_that_died_holds_the_place_for_two_minutes(pump: Pump) -> None:
    run_whole(pump)
    pump.now += 31 * DAY
    assert DjangoStore("default").hold_purge(pump.now, pump.now + HOLD)  # and is heard of no more
    assert purge() == PurgeReport(before=pump.now - 30 * DAY, busy=True)
    assert purge(dry_run=True).instances == 4
    pump.now += HOLD + timedelta(seconds=1)
    assert (purge().instances, purge().busy) == (4, False)


def test_a_purge_whose_place_was_taken_over_stops_and_leaves_it_alone(
    pump: Pump, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(purging, "INSTANCES", 1)
    monkeypatch.setattr(purges, "HOLD", timedelta(0))  # to be renewed each time
    run_whole(pump)
    pump.now += 31 * DAY
    store, until = DjangoStore("default"), pump.now + DAY

    def take_over(point: str) -> None:
        if point == "purge.after_batch":
            assert store.hold_purge(pump.now + DAY / 2, until)

    faults.set_hook(take_over)
    report = purge()
    faults.set_hook(None)
    assert (report.busy, report.more, report.trees) == (True, False, 0)
    assert WorkflowInstance.objects.count() == 4
    assert store.hold_purge(pump.now, None, until)
    assert (purge().instances, any(left().values())) == (4, False)


def test_a_purge_keeps_its_place_while_it_works(pump: Pump, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(purging, "INSTANCES", 1)
    monkeypatch.setattr(purges, "time", SimpleNamespace(monotonic=lambda: pump.now.timestamp()))
    run_whole(pump)
    pump.now += 31 * DAY
    tried: list[bool] = []

    def take_long(point: str) -> None:
        if point == "purge.after_batch":
            pump.now += HOLD / 2
            tried.append(DjangoStore("default").hold_purge(pump.now, pump.now + HOLD))

    faults.set_hook(take_long)
    report = purge()
    faults.set_hook(None)
    assert (report.instances, report.busy) == (4, False)
    assert len(tried) > 4
    assert not any(tried)


def test_a_purge_stops_when_its_time_is_over_and_says_that_there_is_more(
    pump: Pump, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(purging, "INSTANCES", 1)
    run_whole(pump)
    pump.now += 31 * DAY
    report = purge(seconds=0)
    assert (report.more, report.instances) == (True, 0)
    report = purge()
    assert (report.more, report.instances, report.trees) == (False, 4, 1)


def test_leases_of_the_long_dead_go_too(pump: Pump) -> None:
    lease = WorkerLease.objects.get()
    WorkerLease.objects.update(dead_at=pump.now - 2 * DAY)
    assert purge(dry_run=True).leases == 0
    assert purge().leases == 1
    assert not WorkerLease.objects.filter(pk=lease.pk).exists()


# -- costs -------------------------------------------------------------------------------------------------------------


def ended(pump: Pump, trees: int, days: int = 40) -> None:
    made = [
        WorkflowInstance(
            id=UUID(int=days * 10**6 + n), chain_id=UUID(int=days * 10**6 + n), root_id=UUID(int=days * 10**6 + n),
            name="purging.leaf", state="COMPLETED", created_at=pump.now - (days + 1) * DAY,
            start_at=pump.now - days * DAY, finished_at=pump.now - days * DAY,
        )
        for n in range(trees)
    ]  # fmt: skip
    WorkflowInstance.objects.bulk_create(made)
    Mailbox.objects.bulk_create(Mailbox(instance_id=one.pk, closed_at=pump.now) for one in made)
    StepResult.objects.bulk_create(
        StepResult(instance_id=one.pk, position=str(n), kind="step", state="SUCCEEDED", scheduled_at=pump.now)
        for one in made for n in range(3)
    )  # fmt: skip

    Message.objects.bulk_create(
        Message(chain_id=one.pk, instance_id=one.pk, kind="signal", stored_at=pump.now) for one in made
    )


def test_a_batch_costs_the_same_however_many_trees_are_in_it(pump: Pump) -> None:
    def cost(trees: int) -> int:
        ended(pump, trees)
        with counted() as sent:
            assert purge().instances == trees
        return len(sent)

    few = cost(2)
    assert cost(80) == few
    assert few <= 26


def test_every_statement_of_a_batch_goes_by_an_index(pump: Pump) -> None:
    ended(pump, 2000, days=2)  # young ones, which no purge may scan
    ended(pump, 10)
    refresh_statistics()
    with counted() as sent:
        report = purge()
    assert report.instances == 10
    read = [one for one in sent if one.startswith("SELECT") and "durable_celery_" in one and "heartbeat" not in one]
    assert read
    by = [(one, plan_of(one)) for one in read if "FOR UPDATE" not in one]
    roots = next(plan for one, plan in by if "ORDER BY" in one and "LIMIT 100" in one)
    assert "durable_instance_ended" in roots, roots
    ages = next(plan for one, plan in by if "DISTINCT" in one)
    assert "durable_instance_root" in ages, ages
    for one, plan in by:
        scans = ("SCAN durable", "Seq Scan on durable", "'ALL'")
        assert not any(words in plan for words in scans) or "workerlease" in one, (one, plan)
