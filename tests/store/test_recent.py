"""Rows of a long journal that a process keeps: never other than what the database has, whatever happened meanwhile."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest
from django.db import transaction

from django_app.models import StepResult, WorkflowInstance
from django_app.store import DjangoStore, recent
from durable_celery import Workflow, runtime, step, workflow
from durable_celery.core.journal import Entry
from durable_celery.ports import InstanceRow
from tests.pump import Pump, counted

pytestmark = pytest.mark.django_db(transaction=True)

ROWS = recent.LONG + 20


class Down(Exception): ...


fail_at: list[int] = []


@step(name="recent.work", retry=None)
def work(number: int) -> str:
    if number in fail_at:
        raise Down(str(number))
    return f"did {number}"


@workflow(name="recent.long")
def long(count: int) -> Workflow[int]:
    done = 0
    for number in range(count):
        done += len((yield from work(number)))
    return done


@pytest.fixture(autouse=True)
def _all_well() -> None:
    fail_at.clear()


def half_way(pump: Pump, steps: int = ROWS) -> UUID:
    """A run with this many rows taken in and one open; the process that took them is the store of the pump."""
    handle = long.start(1000)
    for _ in range(steps + 1):
        pump.deliver(pump.ready()[0])
    return UUID(handle.id)


def the_same(pump: Pump, instance_id: UUID) -> list[Entry]:
    """What the store reads, with what it keeps; a store that has read nothing yet reads the same."""
    kept, fresh = runtime.current().store.load(instance_id), DjangoStore("default").load(instance_id)
    assert kept is not None
    assert kept == fresh
    return list(kept.journal.entries)


def sizes(instance_id: UUID) -> tuple[int, int]:
    """How many rows the store of the process keeps of the run, and how many there are."""
    loaded = runtime.current().store.load(instance_id)
    assert loaded is not None
    kept = runtime.current().store._recent.of(loaded.instance)  # type: ignore[attr-defined]
    return len(kept.entries) if kept else 0, len(loaded.journal.entries)


def test_of_a_long_journal_only_what_is_new_is_read(pump: Pump) -> None:
    instance_id = half_way(pump)
    the_same(pump, instance_id)
    assert sizes(instance_id) == (ROWS, ROWS + 1)
    with counted() as sent:
        runtime.current().store.load(instance_id)
    assert len(sent) == 2
    assert "taken_turn" in sent[1].partition("WHERE")[2]


def test_a_short_one_is_read_each_time(pump: Pump) -> None:
    instance_id = half_way(pump, 5)
    assert sizes(instance_id) == (0, 6)


def test_turns_that_others_take_are_read(pump: Pump) -> None:
    instance_id = half_way(pump)
    before = the_same(pump, instance_id)
    mine, other = runtime.current(), DjangoStore("default", clock=lambda: pump.now)
    runtime.install(replace(mine, store=other))  # type: ignore[arg-type]
    for _ in range(7):
        pump.deliver(pump.ready()[0])
    runtime.install(mine)
    after = the_same(pump, instance_id)
    assert len(after) == len(before) + 7
    assert after[ROWS].taken_turn == before[ROWS - 1].taken_turn + 1  # type: ignore[operator]


def test_what_people_do_throws_it_away(pump: Pump) -> None:
    fail_at.append(ROWS + 3)
    handle = long.start(ROWS + 10)
    pump.finish()
    assert handle.status == "FAILED"
    the_same(pump, UUID(handle.id))
    fail_at.clear()
    handle.retry()
    entries = the_same(pump, UUID(handle.id))
    assert entries[-1].taken_turn is None
    pump.finish()
    assert handle.result(timeout=0) == sum(len(f"did {number}") for number in range(ROWS + 10))
    the_same(pump, UUID(handle.id))


def test_an_act_without_a_turn_is_enough(pump: Pump) -> None:
    instance_id = half_way(pump)
    the_same(pump, instance_id)
    run = WorkflowInstance.objects.filter(pk=instance_id)
    StepResult.objects.filter(instance_id=instance_id, position="3").update(result='"by hand"')
    run.update(revision=run.get().revision + 1)
    assert the_same(pump, instance_id)[2].result == '"by hand"'


def test_what_is_rolled_back_is_not_kept(pump: Pump) -> None:
    instance_id = half_way(pump)
    store = DjangoStore("default")
    with transaction.atomic():
        store.load(instance_id)
        transaction.set_rollback(True)
    loaded = store.load(instance_id)
    assert loaded is not None
    assert store._recent.of(loaded.instance) is not None
    other = DjangoStore("default")
    with transaction.atomic():
        other.load(instance_id)
        assert other._recent.of(loaded.instance) is None


def test_another_run_under_the_same_id_is_another(pump: Pump) -> None:
    loaded = runtime.current().store.load(half_way(pump))
    assert loaded is not None
    kept = recent.Recent()
    kept.keep(loaded.instance, None, loaded.journal.entries)
    assert kept.of(loaded.instance) is not None
    later: InstanceRow = replace(loaded.instance, created_at=pump.now.replace(year=2027))
    assert kept.of(later) is None
    assert kept.of(replace(loaded.instance, turn=3, revision=3)) is None


def test_there_is_an_end_to_what_is_kept(pump: Pump, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = runtime.current().store.load(half_way(pump))
    assert loaded is not None
    runs = [replace(loaded.instance, id=UUID(int=number)) for number in range(5)]
    monkeypatch.setattr(recent, "ROWS", 3 * ROWS)
    kept = recent.Recent()
    for run in runs:
        kept.keep(run, None, loaded.journal.entries)
        kept.of(runs[0])
    assert [kept.of(run) is not None for run in runs] == [True, False, False, True, True]

    monkeypatch.setattr(recent, "TEXT", 100)
    kept.keep(runs[4], None, loaded.journal.entries)
    assert kept.of(runs[4]) is None


def test_what_a_turn_adds_is_kept_with_what_was_there_and_counts_with_it(pump: Pump) -> None:
    loaded = runtime.current().store.load(half_way(pump))
    assert loaded is not None
    run, entries = loaded.instance, [entry for entry in loaded.journal.entries if entry.taken_turn is not None]
    kept = recent.Recent()
    kept.keep(run, None, entries[:60])
    before = kept.of(run)
    assert before is not None
    later = replace(run, turn=run.turn + 1, revision=run.revision + 1)
    kept.keep(later, before, entries[60:])
    after = kept.of(later)
    assert after is not None
    assert list(after.entries) == entries
    assert after.text == sum(len(entry.result or "") for entry in entries)
    assert list(before.entries) == entries[:60]
