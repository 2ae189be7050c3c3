"""O-20: a long history is read in one query, costs no more statements a turn, is said in time, and is stopped."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest
from django.db import reset_queries
from django.db.models.sql import compiler
from django.urls import reverse

from django_app.models import StepResult, WorkflowInstance
from django_app.store import DjangoStore
from durable_celery import Workflow, map_step, sleep, step, workflow
from tests.django_app.browsing import squeezed, text_of, url_of
from tests.pump import Pump, counted

pytestmark = pytest.mark.django_db(transaction=True)

STEPS = 2000


@step(name="o20.noop")
def noop(number: int) -> int:
    return number


@workflow(name="o20.sequence")
def sequence(count: int) -> Workflow[int]:
    total = 0
    for number in range(count):
        total += yield from noop(number)
    return total


@workflow(name="o20.polls")
def polls() -> Workflow[None]:
    number = 0
    while True:
        number = (yield from noop(number)) + 1
        yield from sleep(60)


@workflow(name="o20.maps")
def maps(count: int) -> Workflow[int]:
    return sum((yield from map_step(noop, range(count))))


class Taken:
    """What each message of a long sequence took: statements, and CPU seconds of this thread."""

    def __init__(self) -> None:
        self.statements: list[int] = []
        self.seconds: list[float] = []


def run(pump: Pump, *, count_statements: bool) -> Taken:
    handle, taken = sequence.start(STEPS), Taken()
    pump.deliver(pump.ready()[0])
    while pump.ready():
        before = time.thread_time()
        if count_statements:
            reset_queries()  # no more than some thousands are kept
            with counted() as sent:
                pump.deliver(pump.ready()[0])
            taken.statements.append(len(sent))
        else:
            pump.deliver(pump.ready()[0])
        taken.seconds.append(time.thread_time() - before)
    assert handle.result(timeout=0) == sum(range(STEPS))
    assert len(taken.seconds) == STEPS
    return taken


@pytest.mark.timeout(900)
def test_o20_two_thousand_steps_finish_and_the_statements_of_a_turn_do_not_grow(pump: Pump) -> None:
    taken = run(pump, count_statements=True)
    early, late = taken.statements[10:110], taken.statements[-110:-10]
    assert sum(late) == sum(early)
    assert max(late) == max(early)
    row = WorkflowInstance.objects.get()
    assert (row.state, row.history_length, StepResult.objects.count()) == ("COMPLETED", STEPS, STEPS)


@pytest.mark.nightly
@pytest.mark.timeout(900)
def test_o20_a_step_takes_at_most_three_times_as_long_at_the_end(pump: Pump) -> None:
    taken = run(pump, count_statements=False)
    first, last = statistics.median(taken.seconds[10:110]), statistics.median(taken.seconds[-100:])
    print(f"O-20: a step takes {first * 1000:.1f} ms at the start and {last * 1000:.1f} ms after {STEPS}")
    assert last <= 3 * first


def test_o20_a_replay_reads_the_history_in_one_query_and_in_chunks(pump: Pump, monkeypatch: pytest.MonkeyPatch) -> None:
    handle = sequence.start(300)
    pump.drain()
    chunks: list[int] = []
    plain = compiler.cursor_iter

    def noting(*args: Any, **kwargs: Any) -> Iterator[Any]:
        for rows in plain(*args, **kwargs):
            chunks.append(len(rows))
            yield rows

    monkeypatch.setattr(compiler, "cursor_iter", noting)
    with counted() as sent:
        loaded = DjangoStore().load(UUID(handle.id))  # of a process that has not seen it

    assert loaded is not None
    assert len(loaded.journal.entries) == 300
    (reading,) = [statement for statement in sent if "FROM " in statement and "stepresult" in statement.lower()]
    assert "LIMIT" not in reading.upper()
    assert sum(chunks) >= 300
    assert max(chunks) <= 100


def test_o20_a_loop_for_ever_is_said_in_the_admin_and_then_blocked_with_advice(
    transactional_db: None, admin_client: Any
) -> None:
    with Pump(history_warn=20, history_limit=40) as pump:
        handle = polls.start()
        pump.advance_time(minutes=8)
        row, listed = WorkflowInstance.objects.get(), reverse("admin:durable_celery_workflowinstance_changelist")
        assert row.history_length < 20
        assert "long history" not in text_of(admin_client, listed)
        assert "long history" not in text_of(admin_client, url_of(row))

        pump.advance_time(minutes=3)
        row.refresh_from_db()
        assert 20 <= row.history_length < 40
        assert "WAITING long history" in squeezed(text_of(admin_client, listed))
        said = squeezed(text_of(admin_client, url_of(row)))
        assert f"long history: {row.history_length} rows, HISTORY_WARN is 20, at 40 it is BLOCKED" in said

        pump.advance_time(minutes=30)
        row.refresh_from_db()
        assert (handle.status, row.history_length, StepResult.objects.count()) == ("BLOCKED", 40, 40)
        assert "HISTORY_LIMIT is 40" in handle.waiting_for
        assert "return (yield from continue_as_new(...))" in handle.waiting_for
        assert "continue_as_new" in squeezed(text_of(admin_client, url_of(row)))


def test_o20_members_of_map_step_do_not_count(transactional_db: None) -> None:
    with Pump(history_warn=20, history_limit=40) as pump:
        handle = maps.start(100)
        pump.finish()
        assert handle.result(timeout=0) == sum(range(100))
        row = WorkflowInstance.objects.get()
        assert row.history_length == 1
        assert StepResult.objects.count() == 101
