"""O-63: what has ended costs nothing: claims and sweeps read by indexes that hold only what is due."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection

from django_app.models import StepResult
from durable_celery import Workflow, runtime, sleep, step, sweeps, workflow
from tests.pump import BEGIN, Pump, counted
from tests.store.filling import closed_instances
from tests.store.test_sweeping import plan_of, refresh_statistics

pytestmark = pytest.mark.django_db(transaction=True)

DUE = 50
LONGEST = 0.02  # seconds
SCANS = ("SCAN durable_celery_workflowinstance", "SCAN durable_celery_stepresult", "SCAN durable_celery_message",
         "Seq Scan on durable_celery_workflowinstance", "Seq Scan on durable_celery_stepresult")  # fmt: skip
INDEXES = {
    "due_steps": "durable_step_look", "due_instances": "durable_instance_look", "claims": "durable_step_lease",
}  # fmt: skip


@step(name="o63.work")
def work() -> int:
    return 1


@workflow(name="o63.waiting")
def waiting() -> Workflow[int]:
    yield from sleep(1)
    return (yield from work())


@pytest.fixture
def due() -> Iterator[Pump]:
    """Fifty timers that are due."""
    with Pump() as pump:
        waiting.start_many([()] * DUE)
        pump.drain()
        yield pump


def add_finished(number: int) -> None:
    closed_instances(number, ended_at=BEGIN - timedelta(days=1), steps=1)
    if connection.vendor == "mysql":
        with connection.cursor() as cursor:
            for table in ("workflowinstance", "stepresult", "mailbox"):
                cursor.execute(f"ANALYZE TABLE durable_celery_{table}")
                cursor.fetchall()
    refresh_statistics()


def test_o63_every_statement_of_a_tick_and_a_claim_goes_by_an_index(due: Pump) -> None:
    add_finished(3000)
    due.now += timedelta(seconds=2)
    with counted() as sent:
        report = sweeps.tick(by="o63", force=True)
    assert report.advanced == DUE
    sent += [one for statements in asked(due).values() for one in statements]  # a first tick asks not for all
    with counted() as claims:
        while due.queue:  # the turns, and then the claims of their steps
            due.deliver(due.queue[0])
    by_index: dict[str, int] = {}
    for statement in dict.fromkeys(shape(one) for one in [*sent, *claims]):
        example = next(one for one in [*sent, *claims] if shape(one) == statement)
        if not example.startswith(("SELECT", "UPDATE", "DELETE")) or "durable_celery_" not in example:
            continue
        plan = plan_of(example)
        assert not any(words in plan for words in SCANS), (example, plan)
        for index in re.findall(r"durable_\w+_(?:look|lease)", plan):
            by_index[index] = by_index.get(index, 0) + 1
    assert set(INDEXES.values()) <= set(by_index), by_index
    assert StepResult.objects.filter(name=work.name, state="SUCCEEDED").count() == DUE


@pytest.mark.partial
def test_o63_the_indexes_of_the_sweep_hold_no_ended_row(due: Pump) -> None:
    """Every ended row leaves them, so nothing they are read by can grow with what has ended."""
    add_finished(1000)
    with connection.cursor() as cursor:
        for table, index in (("stepresult", "durable_step_look"), ("workflowinstance", "durable_instance_look")):
            cursor.execute(definition_of(index))
            (text,) = cursor.fetchone()
            where = text.upper().partition(" WHERE ")[2].replace('"', "")
            assert "LOOK_AT IS NOT NULL" in where, text
            cursor.execute(f"SELECT COUNT(*) FROM durable_celery_{table} WHERE {where.lower()} AND state IN (%s, %s)",
                           ["COMPLETED", "SUCCEEDED"])  # fmt: skip
            assert cursor.fetchone() == (0,)


def definition_of(index: str) -> str:
    if connection.vendor == "sqlite":
        return f"SELECT sql FROM sqlite_master WHERE name = '{index}'"
    return f"SELECT indexdef FROM pg_indexes WHERE indexname = '{index}'"


@pytest.mark.on("postgres", "redis")
def test_o63_no_statement_reads_more_pages_with_five_times_as_many_finished_rows(due: Pump) -> None:
    due.now += timedelta(seconds=2)
    add_finished(3000)
    few = pages_read(due)
    add_finished(12_000)
    many = pages_read(due)
    assert set(few) == set(many)
    for name in few:
        assert many[name] < 2 * few[name] + 10, (name, few, many)


def pages_read(due: Pump) -> dict[str, int]:
    return {name: sum(map(pages_of, statements)) for name, statements in asked(due).items()}


def pages_of(statement: str) -> int:
    with connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN (ANALYZE, BUFFERS) {statement}")
        plan = "\n".join(line for (line,) in cursor.fetchall())
    return sum(int(found) for found in re.findall(r"(?:hit|read)=(\d+)", plan.splitlines()[1] if plan else ""))


def asked(due: Pump) -> dict[str, list[str]]:
    """The statements of each question of the tick."""
    found: dict[str, list[str]] = {}
    for name, ask in questions(due).items():
        with counted() as sent:
            ask()
        found[name] = [one for one in sent if one.startswith("SELECT")]
    return found


def questions(due: Pump) -> dict[str, Callable[[], Any]]:
    store = runtime.current().store
    return {
        "due_steps": lambda: store.due_steps(due.now, 200),
        "due_instances": lambda: store.due_instances(due.now, 200),
        "due_messages": lambda: store.due_messages(due.now, 200),
        "ended_members": lambda: store.ended_members(due.now, 2000),
        "claims": lambda: store.claims(limit=200),
        "next_look": store.next_look,
    }


@pytest.mark.nightly
@pytest.mark.timeout(900)
def test_o63_no_question_takes_longer_than_20_ms_or_grows_from_3_000_to_300_000_rows(due: Pump) -> None:
    due.now += timedelta(seconds=2)
    add_finished(3000)
    few = seconds_of(due)
    add_finished(297_000)
    many = seconds_of(due)
    print({name: f"{few[name] * 1000:.2f} -> {many[name] * 1000:.2f} ms" for name in few})
    for name in few:
        assert many[name] < LONGEST, (name, few, many)
        assert many[name] < 2 * few[name] + 0.001, (name, few, many)


def seconds_of(due: Pump) -> dict[str, float]:
    found = {}
    for name, ask in questions(due).items():
        times = []
        for _ in range(30):
            began = time.perf_counter()
            ask()
            times.append(time.perf_counter() - began)
        found[name] = min(times)  # the others waited for the machine
    return found


def shape(statement: str) -> str:
    """The statement without its values."""
    return re.sub(r"'[^']*'|\b\d+\b", "?", statement)
