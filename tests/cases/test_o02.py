"""O-02: whoever sleeps costs a row. Thousands of sleepers leave the broker empty, the worker as big as it was and its
ticks as cheap; a short workflow started among them runs at once."""

from __future__ import annotations

import copy
import time
from collections.abc import Iterator
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import psutil
import pytest
from django.db.models import Model

from django_app.models import EngineHeartbeat, Mailbox, StepResult, WorkflowInstance
from durable_celery import Workflow, sleep, sweeps, workflow
from tests.broker import waiting_messages
from tests.effects import effects
from tests.processes import Worker, eventually
from tests.project.testapp.workflows import napping, sequence
from tests.pump import counted

HOUR = 3600
STARTED = 15  # of the sleepers, the others are rows that look like theirs
MIB = 1024 * 1024


@pytest.mark.prefork
@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    ("sleepers", "bound"),
    [
        pytest.param(5_000, None, id="5000"),
        pytest.param(20_000, 5, id="20000", marks=[pytest.mark.nightly, pytest.mark.timeout(300)]),
    ],
)
def test_o02_thousands_of_sleepers_cost_a_worker_no_memory_and_the_broker_no_message(start_worker, sleepers, bound):
    worker = start_worker()
    sequence.start("warm up", 2).result(timeout=30)
    before = size(worker)
    handles = napping.start_many([(f"sleeper {number}", HOUR) for number in range(STARTED)])
    eventually(lambda: timers().count() == STARTED, "the sleepers to sleep", seconds=60)
    multiply(UUID(handles[0].id), sleepers - STARTED)
    let_tick(4)

    waiting = WorkflowInstance.objects.waiting().filter(name=napping.name)
    assert waiting.count() == sleepers
    assert timers().count() == sleepers
    eventually(lambda: waiting_messages() == 0, "an empty queue")
    began = time.monotonic()
    assert sequence.start("short", 2).result(timeout=30) == ["step 0", "step 1"]
    assert bound is None or time.monotonic() - began < bound
    assert effects("short") == {"step 0": 1, "step 1": 1}
    assert size(worker) - before < 50 * MIB


def timers() -> Any:
    return StepResult.objects.filter(kind="timer", state="SCHEDULED")


def size(worker: Worker) -> int:
    """Resident memory of a worker and its pool, in bytes."""
    return sum(psutil.Process(pid).memory_info().rss for pid in (worker.pid, *worker.children()))


def let_tick(times: int) -> None:
    for _ in range(times):
        last = EngineHeartbeat.objects.get().last_tick_at
        eventually(lambda last=last: EngineHeartbeat.objects.get().last_tick_at > last, "another tick")


def multiply(instance_id: UUID, times: int) -> None:
    """So many more instances that sleep as this one does."""
    ids = [uuid4() for _ in range(times)]
    instance = WorkflowInstance.objects.get(pk=instance_id)
    steps = list(StepResult.objects.filter(instance_id=instance_id, kind="timer"))
    for model, rows in (
        (WorkflowInstance, (like(instance, id=pk, chain_id=pk, root_id=pk) for pk in ids)),
        (Mailbox, (Mailbox(instance_id=pk) for pk in ids)),
        (StepResult, (like(row, id=None, instance_id=pk) for pk in ids for row in steps)),
    ):
        model._base_manager.bulk_create(list(rows), batch_size=500)


def like(row: Model, **values: Any) -> Model:
    other = copy.copy(row)
    other._state = copy.copy(row._state)
    other._state.adding = True
    other._state.fields_cache = {}
    for name, value in values.items():
        setattr(other, name, value)
    return other


# -- the price of a tick ----------------------------------------------------------------------------------------------


@workflow
def dozing() -> Workflow[None]:
    yield from sleep(HOUR)


def test_o02_a_tick_among_sleepers_sends_no_more_statements_and_touches_none_of_them(pump):
    prices = list(ticks_among(pump, 1, 10, 1_000))
    assert len(set(prices)) == 1
    assert pump.queue == []
    pump.advance_time(HOUR)
    assert WorkflowInstance.objects.filter(state="COMPLETED").count() == 10


def ticks_among(pump, *numbers: int) -> Iterator[int]:
    handle = dozing.start()
    pump.drain()
    pump.tick()  # the first of all makes its row
    for number in numbers:
        more = number - timers().count()
        if number <= 10:
            dozing.start_many([()] * more)
            pump.drain()
        else:
            multiply(UUID(handle.id), more)
        pump.now += timedelta(seconds=6)  # at each tick everything is looked for, the stuck ones too
        with counted() as sent:
            report = sweeps.tick(by="test", force=True)
        assert (report.sent, report.advanced, report.started, report.timed_out, report.errors) == (0, 0, 0, 0, 0)
        yield len(sent)
    StepResult.objects.exclude(instance_id__in=started_ids()).delete()


def started_ids() -> list[UUID]:
    return list(WorkflowInstance.objects.order_by("created_at", "id").values_list("id", flat=True)[:10])
