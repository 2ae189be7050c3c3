"""O-62: a purge of very many goes in small committed batches, keeps what it has done, and needs no more memory."""

from __future__ import annotations

import os
import tracemalloc
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import psutil
import pytest
from billiard.exceptions import SoftTimeLimitExceeded
from celery import current_app
from django.db import connection

from django_app.models import StepResult, WorkflowInstance
from django_app.store import purging as rows_of_a_batch
from durable_celery import Signal, Workflow, faults, runtime, sleep, spawn, step, workflow
from durable_celery.celery.quiet import PURGE
from durable_celery.purging import PurgeReport, purge
from tests.pump import BEGIN, Pump
from tests.store.filling import NAME, closed_instances
from tests.store.making import at_once

pytestmark = pytest.mark.django_db(transaction=True)

DAY = timedelta(days=1)
STEPS = 3
MEBI = 1024 * 1024
go = Signal("o62.go", str)


@step(name="o62.breaks", retry=None)
def breaks() -> None:
    raise RuntimeError("as it should")


@workflow(name="o62.waits")
def waits() -> Workflow[str]:
    return (yield from go.wait())


@workflow(name="o62.blocked")
def blocked() -> Workflow[None]:
    raise ValueError("a bug")
    yield


@workflow(name="o62.leaves_a_child_alive")
def leaves_a_child_alive() -> Workflow[None]:
    yield from spawn(waits.using(parent_close="abandon")())
    yield from sleep(1)


@workflow(name="o62.failing")
def failing() -> Workflow[None]:
    yield from breaks()


@workflow(name="o62.waits_after_a_child")
def waits_after_a_child() -> Workflow[str]:
    try:
        yield from failing()
    except Exception:  # the child has ended, its parent lives
        pass
    return (yield from go.wait())


@pytest.fixture
def month_old() -> Iterator[Pump]:
    """Closed instances of a day and more ago, and old ones that must stay."""
    with Pump(retention=DAY) as pump:
        kept: list[Any] = [waits.start(), blocked.start(), leaves_a_child_alive.start(), waits_after_a_child.start()]
        pump.finish()
        assert [handle.status for handle in kept] == ["WAITING", "BLOCKED", "COMPLETED", "WAITING"]
        pump.now += 30 * DAY
        yield pump
        faults.set_hook(None)


def fill(number: int) -> None:
    closed_instances(number, ended_at=BEGIN, steps=STEPS)


def closed() -> int:
    return WorkflowInstance.objects.filter(name=NAME).count()


def kept_rows() -> set[Any]:
    mine = WorkflowInstance.objects.exclude(name=NAME)
    return {*mine.values_list("pk", "state"), *StepResult.objects.filter(instance__in=mine).values_list("pk", "state")}


class Batches:
    """Instances that are there before each batch; at the given batch, what a task's soft time limit raises."""

    def __init__(self, *, limit_at: int | None = None) -> None:
        self.seen: list[int] = []
        self.limit_at = limit_at

    def __call__(self, point: str) -> None:
        if point != "purge.before_batch":
            return
        assert not connection.in_atomic_block, "each batch is committed before the next"
        self.seen.append(closed())
        if len(self.seen) == self.limit_at:
            raise SoftTimeLimitExceeded


def test_o62_batches_are_small_and_what_a_time_limit_leaves_is_gone_on_with(month_old: Pump) -> None:
    before = kept_rows()
    fill(1000)
    faults.set_hook(limited := Batches(limit_at=6))
    with pytest.raises(SoftTimeLimitExceeded):
        purge()
    done = 1000 - closed()
    assert done > 0, "progress survives the time limit"
    faults.set_hook(rest := Batches())
    report = purge()
    assert done + report.instances == 1000
    assert closed() == 0
    assert rest.seen[0] == limited.seen[-1] == 1000 - done
    sizes = [earlier - later for earlier, later in zip(limited.seen + rest.seen[1:], limited.seen[1:] + rest.seen[1:])]  # noqa: B905
    assert rows_of_a_batch.INSTANCES <= 1000
    assert max(sizes) <= rows_of_a_batch.INSTANCES
    assert kept_rows() == before
    assert report.left == 1, "the tree whose child lives; open roots are not even looked at"


def test_o62_memory_does_not_grow_with_what_is_removed(month_old: Pump) -> None:
    fill(100)
    purge()  # what is imported and compiled but once
    few, many = peak_of_purging(400), peak_of_purging(2000)
    assert many < few + MEBI, (few, many)


def peak_of_purging(number: int) -> int:
    fill(number)
    tracemalloc.start()
    try:
        assert purge().instances == number
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_o62_two_purges_at_once_remove_each_instance_once(month_old: Pump) -> None:
    before = kept_rows()
    fill(300)
    reports: list[PurgeReport] = at_once(purge, purge)
    assert sum(report.instances for report in reports) == 300
    assert closed() == 0
    assert kept_rows() == before


def test_o62_only_one_purge_works_at_a_time(month_old: Pump) -> None:
    fill(300)
    seconds: list[PurgeReport] = []

    def another(point: str) -> None:
        if point in ("purge.before_batch", "purge.after_batch"):
            seconds.extend(at_once(purge))

    faults.set_hook(another)
    first = purge()
    faults.set_hook(None)
    assert (first.instances, first.busy) == (300, False)
    assert len(seconds) >= 6
    assert {(report.instances, report.trees, report.busy) for report in seconds} == {(0, 0, True)}
    assert (purge().busy, closed()) == (False, 0)


def test_o62_a_project_wide_time_limit_is_not_the_purges(month_old: Pump) -> None:
    task = current_app.tasks[PURGE]
    assert not task.soft_time_limit
    assert not task.time_limit
    assert task.ignore_result


@pytest.mark.nightly
@pytest.mark.timeout(3000)
def test_o62_200_000_instances_go_within_flat_memory(month_old: Pump) -> None:
    before = kept_rows()
    fill(200_000)
    assert StepResult.objects.filter(instance__name=NAME).count() == 600_000
    process = psutil.Process(os.getpid())
    purge(seconds=5)
    began, messages, removed = process.memory_info().rss, 0, 200_000 - closed()
    while True:  # as the task does: another message goes on
        report = purge(seconds=20)
        messages, removed = messages + 1, removed + report.instances
        if not report.more:
            break
    print(f"purge: {removed} instances, {messages} messages, RSS {(process.memory_info().rss - began) / MEBI:.1f} MiB")
    assert removed == 200_000
    assert process.memory_info().rss - began < 30 * MEBI
    assert kept_rows() == before
    assert runtime.settings().retention == DAY
