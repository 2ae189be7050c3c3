"""The purge: whole closed trees and nothing else, by indexes, in short transactions that may be killed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta
from io import StringIO
from typing import Any
from uuid import UUID

import pytest
from django.core.management import call_command
from django.test import override_settings

from django_app.models import (
    Mailbox,
    Marker,
    Message,
    StepAttempt,
    StepResult,
    WorkerLease,
    WorkflowInstance,
    WorkflowKey,
)
from django_app.store import DjangoStore, purging
from durable_celery import (
    InstanceNotFound,
    KeyConflict,
    NotRetryable,
    RetryPolicy,
    Signal,
    Workflow,
    continue_as_new,
    faults,
    get_handle,
    patched,
    spawn,
    step,
    workflow,
)
from durable_celery.purging import PurgeReport, purge
from tests.pump import Killed, Pump, counted
from tests.store.making import at_once
from tests.store.test_sweeping import plan_of, refresh_statistics

pytestmark = pytest.mark.django_db(transaction=True)

DAY = timedelta(days=1)
TABLES = (WorkflowInstance, StepResult, StepAttempt, Message, Marker, Mailbox, WorkflowKey)
go = Signal("go")
fails = {"left": 0}


@step(name="purging.double", retry=RetryPolicy(maximum_attempts=2))
def double(number: int) -> int:
    if fails["left"]:
        fails["left"] -= 1
        raise ValueError(number)
    return number * 2


@workflow(name="purging.whole")
def whole(laps: int) -> Workflow[int]:
    """Every kind of row there is: two runs, a child, a signal, a marker, an attempt that failed."""
    patched("purging")
    yield from go.wait()
    number = yield from leaf(laps)
    if laps:
        yield from continue_as_new(laps - 1)
    return number


@workflow(name="purging.leaf")
def leaf(number: int) -> Workflow[int]:
    return (yield from double(number))


@workflow(name="purging.patient")
def patient() -> Workflow[int]:
    yield from go.wait()
    return 1


@workflow(name="purging.parent")
def parent() -> Workflow[int]:
    """Ends at once; its child goes on."""
    yield from spawn(patient.using(parent_close="abandon")())
    yield from double(1)
    return 0


def run_whole(pump: Pump, key: str | None = "order-1") -> UUID:
    fails["left"] = 1
    handle = whole.using(key=key).start(1)
    handle.signal("go", "a")
    handle.signal("go", "b")
    pump.finish()
    assert handle.result() == 0
    return UUID(handle.id)


def left() -> dict[str, int]:
    return {model.__name__: model.objects.count() for model in TABLES}


@pytest.fixture(autouse=True)
def _no_faults_left() -> Iterator[None]:
    yield
    faults.set_hook(None)
    fails["left"] = 0


def test_a_whole_tree_goes_with_all_that_belongs_to_it_once_its_time_is_over(pump: Pump) -> None:
    run_whole(pump)
    before = left()
    assert before["WorkflowInstance"] == 4, "two runs, a child of each"
    assert all(before.values()), before
    pump.now += 30 * DAY - timedelta(minutes=1)
    assert purge().instances == 0
    assert left() == before
    pump.now += timedelta(minutes=2)
    assert purge(dry_run=True).instances == 4
    assert left() == before
    report = purge()
    assert (report.trees, report.instances, report.messages, report.left) == (1, 4, before["Message"], 0)
    assert report.steps == before["StepResult"]
    assert not any(left().values()), left()
    assert purge().trees == 0


def test_an_open_member_of_a_tree_keeps_all_of_it(pump: Pump) -> None:
    handle = parent.start()
    pump.finish()
    assert handle.result() == 0
    before = left()
    pump.now += 90 * DAY
    report = purge()
    assert (report.trees, report.left, report.instances) == (0, 1, 0)
    assert left() == before
    child = WorkflowInstance.objects.get(name="purging.patient")
    get_handle(child.chain_id).signal("go")
    pump.finish()
    assert purge().trees == 0, "the tree is as young as its youngest"
    pump.now += 31 * DAY
    assert purge().trees == 1
    assert left()["WorkflowInstance"] == 0


def test_an_open_chain_keeps_its_earlier_runs(pump: Pump) -> None:
    handle = whole.start(1)
    handle.signal("go")
    pump.finish()
    assert WorkflowInstance.objects.filter(state="CONTINUED").count() == 1
    pump.now += 90 * DAY
    before = left()
    assert purge() == PurgeReport(before=pump.now - 30 * DAY)
    assert left() == before
    handle.signal("go")
    pump.finish()
    assert handle.result() == 0


def test_none_keeps_everything_and_an_age_of_ones_own_goes_first(pump: Pump) -> None:
    run_whole(pump)
    with Pump(retention=None) as keeping:
        keeping.now = pump.now + 1000 * DAY
        assert purge() == PurgeReport()
        assert left()["WorkflowInstance"] == 4
        assert purge(older_than=DAY).instances == 4


# -- keys --------------------------------------------------------------------------------------------------------------


def test_a_key_is_free_after_the_purge_and_finds_nothing(pump: Pump) -> None:
    run_whole(pump, key="order-1")
    with pytest.raises(KeyConflict):
        whole.using(key="order-1", reuse="reject").start(0)
    pump.now += 31 * DAY
    purge()
    with pytest.raises(InstanceNotFound):
        whole.get(key="order-1")
    again = whole.using(key="order-1", reuse="reject").start(0)
    again.signal("go")
    pump.finish()
    assert again.result() == 0
    assert str(WorkflowKey.objects.get().last_id) == again.id


def test_a_key_that_is_open_again_stays_with_its_new_instance(pump: Pump) -> None:
    run_whole(pump, key="order-1")
    pump.now += 31 * DAY
    again = whole.using(key="order-1", reuse="allow").start(0)
    assert purge().instances == 4
    held = WorkflowKey.objects.get()
    assert (held.open_id, held.last_id, held.last_state) == (UUID(again.id), None, "")
    with pytest.raises(KeyConflict):
        whole.using(key="order-1").start(3)
    again.signal("go")
    pump.finish()
    assert whole.get(key="order-1").id == again.id


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
    assert few <= 25


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


# -- the verb ----------------------------------------------------------------------------------------------------------


def verb(*args: str) -> tuple[int, str, str]:
    out, err = StringIO(), StringIO()
    try:
        call_command("durable", "purge", *args, stdout=out, stderr=err)
    except SystemExit as stop:
        return int(stop.code or 0), out.getvalue(), err.getvalue()
    return 0, out.getvalue(), err.getvalue()


def test_the_verb_counts_and_removes(pump: Pump) -> None:
    run_whole(pump)
    pump.now += 10 * DAY
    code, out, _ = verb("--dry-run", "--older-than", "9d", "--json")
    told: dict[str, Any] = json.loads(out)
    assert code == 0
    assert (told["dry_run"], told["trees"], told["instances"]) == (True, 1, 4)
    assert verb()[1].startswith("0 instances in 0 trees")
    assert left()["WorkflowInstance"] == 4
    code, out, _ = verb("--older-than", "9d")
    assert code == 0
    assert out.startswith("4 instances in 1 trees that ended before ")
    assert not any(left().values())


@pytest.mark.parametrize("age", ["-1", "soon", "1y", "9" * 30])
def test_an_age_that_is_none_is_wrong_usage(pump: Pump, age: str) -> None:
    run_whole(pump)
    code, _, err = verb(f"--older-than={age}")
    assert code == 2
    assert "expected an age as 30d" in err
    assert left()["WorkflowInstance"] == 4


def test_without_retention_the_verb_wants_an_age() -> None:
    with override_settings(DURABLE_CELERY={"RETENTION": None}):
        code, _, err = verb()
    assert code == 2
    assert "--older-than" in err
