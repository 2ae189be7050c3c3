"""Ten thousand members: memory, statements and rows read do not grow with them, but where they must."""

from __future__ import annotations

import gc
import tracemalloc
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection

from django_app.models import StepResult, WorkflowInstance
from django_app.models.querysets import IN_JOURNAL
from durable_celery import Workflow, current_workflow, map_step, runtime, step, workflow
from durable_celery.core import transitions as t
from tests.project.testapp.models import Effect
from tests.pump import Pump, counted

MANY = 10_000


@step(name="maps.square")
def square(number: int) -> int:
    return number * number


@workflow(name="maps.many")
def many(count: int, limit: int | None = None) -> Workflow[int]:
    squares = yield from map_step(square, range(count), limit=limit)
    total = yield from square(1)
    for _ in range(3):
        total += yield from square(2)
    assert current_workflow().history_length < 20
    return total + sum(squares)


@workflow(name="maps.rows_of_many")
def rows_of_many() -> Workflow[int]:
    keys = yield from map_step(square, Effect.objects.all())
    return len(keys)


def end_all_but(pump: Pump, left: int) -> None:
    """As if workers had run them: the row of each but the last few has its result."""
    members = StepResult.objects.filter(mapped=True, state__in=(t.SCHEDULED, t.HELD)).order_by("id")
    ids = list(members.values_list("id", flat=True))
    last = ids[-left]
    members.filter(pk__lt=last).update(
        state=t.SUCCEEDED, result="7", finished_at=pump.now, look_at=pump.now + timedelta(seconds=2), attempt=1
    )
    members.filter(state=t.HELD).update(state=t.SCHEDULED)
    pump.queue.clear()
    pump.dispatch(runtime.current().store.dispatches(ids[-left:]), pump.now)


def peak_of_a_turn(pump: Pump) -> int:
    """Bytes above what was there, at the worst moment of the next message; what stays goes with it."""
    pump.sent.clear()
    gc.collect()
    tracemalloc.start()
    pump.deliver(pump.ready()[0])
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return peak


def test_a_turn_takes_less_than_a_kibibyte_a_member_and_no_more_with_each_turn(pump: Pump):
    pump.dispatch = lambda dispatches, now: len(dispatches)  # type: ignore[method-assign]
    handle = many.start(MANY, limit=10)
    opening = peak_of_a_turn(pump)
    del pump.dispatch  # type: ignore[method-assign]
    assert StepResult.objects.filter(mapped=True).count() == MANY
    end_all_but(pump, 1)
    peaks = []
    while handle.status != t.COMPLETED:
        peaks.append(peak_of_a_turn(pump))
    print(f"bytes a member: opening {opening / MANY:.0f}, turns {[round(peak / MANY) for peak in peaks]}")
    assert opening < MANY * 1024
    assert max(peaks) < MANY * 1024
    assert peaks[-2] < peaks[1] * 1.2 + 100_000
    assert handle.result(timeout=1) == 7 * (MANY - 1) + (MANY - 1) ** 2 + 1 + 12


def test_of_a_queryset_the_turn_holds_a_page_and_no_more(pump: Pump):
    Effect.objects.bulk_create([Effect(key="x") for _ in range(MANY)], batch_size=1000)
    pump.dispatch = lambda dispatches, now: len(dispatches)  # type: ignore[method-assign]
    rows_of_many.start()
    opening = peak_of_a_turn(pump)
    print(f"bytes a member: opening {opening / MANY:.0f}")
    assert StepResult.objects.filter(mapped=True).count() == MANY
    assert opening < MANY * 1024  # an INSERT of one page, and no list of keys


def test_statements_grow_by_pages_in_the_turns_that_read_or_write_members_and_in_no_other(pump: Pump):
    few, more = statements_of_turns(pump, 100), statements_of_turns(pump, 3000)
    print(f"statements of each message: {few} and {more}")
    assert len(few) == len(more)
    page = 20 if connection.vendor == "sqlite" else 400  # rows in an INSERT; SQLite takes few parameters
    assert more[0] - few[0] <= 3000 // page + 3000 // 400  # and a SELECT for 500 to send
    assert more[1] - few[1] <= 1  # the members are read in pages of 2,000
    assert more[2:] == few[2:]


def statements_of_turns(pump: Pump, members: int) -> list[int]:
    handle = many.start(members)
    counts = []
    while handle.status != t.COMPLETED:
        with counted() as sent:
            pump.deliver(pump.ready()[0])
        counts.append(len(sent))
        if len(counts) == 1:
            end_all_but(pump, 1)
    return counts


def test_a_load_reads_no_member_but_once_when_the_map_has_ended(pump: Pump):
    handle = many.start(2000)
    pump.deliver(pump.ready()[0])
    pk = WorkflowInstance.objects.get(pk=handle.id).pk
    assert members_read(pk) == [("COUNT", 0)]
    end_all_but(pump, 1)
    pump.deliver(pump.ready()[0])  # the last member, and the turn that takes the map in
    assert handle.history()[0].state == t.SUCCEEDED
    assert members_read(pk) == []
    loaded = runtime.current().store.load(pk)
    assert loaded is not None
    assert [entry.kind for entry in loaded.journal.entries] == ["map", "step"]
    assert not runtime.current().store.has_news(pk, "1")


def members_read(pk: Any) -> list[tuple[str, int]]:
    """What a load asks of members: counts or rows."""
    with counted() as sent:
        runtime.current().store.load(pk)
    of_members = [sql for sql in sent if '"mapped"' in sql.replace("`", '"') and "GROUP BY" in sql.upper()]
    rows = [sql for sql in sent if '"group"' in sql.replace("`", '"') and "GROUP BY" not in sql.upper()]
    return [("COUNT", 0) for _ in of_members] + [("ROWS", 1) for _ in rows]


@pytest.mark.partial
def test_the_journal_is_read_by_an_index_that_has_no_members(pump: Pump):
    handle = many.start(500)
    pump.deliver(pump.ready()[0])
    found = StepResult.objects.filter(IN_JOURNAL, instance_id=handle.id).order_by("id")
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute("ANALYZE durable_celery_stepresult")
    plan = found.explain()
    assert "durable_step_journal" in plan or "durable_step_news" in plan, plan


@pytest.mark.nightly
@pytest.mark.timeout(900)
def test_ten_thousand_members_really_run(pump: Pump):
    handle = many.start(MANY, limit=50)
    while pump.queue:
        pump.deliver(pump.queue[0])
    assert handle.result(timeout=1) == sum(n * n for n in range(MANY)) + 13
