"""Idempotency that looks first and inserts later lets starts of one moment all run.

Twenty threads and two processes start one workflow with one key at a barrier: one instance, whoever asks.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from django.db import IntegrityError, connection, transaction

from django_app.models import Mailbox, WorkflowInstance, WorkflowKey
from durable_celery import Workflow, step, workflow
from durable_celery.client import WorkflowHandle
from tests.processes import ROOT, eventually
from tests.pump import Pump
from tests.store.making import at_once

pytestmark = pytest.mark.django_db(transaction=True)

THREADS, PROCESSES = 20, 2
STARTER = """
import json, os, sys, threading, time
import django
django.setup()
from django.db import connection
from tests.project.testapp.workflows import sequence
gate, ready = sys.argv[1], sys.argv[2]
answers = []
def start():
    connection.ensure_connection()
    connection.close()
    while not os.path.exists(gate):
        time.sleep(0.001)
    try:
        handle = sequence.using(key="order-7").start("o37", 1)
        answers.append([handle.id, handle.created])
    except BaseException as error:
        answers.append([repr(error), None])
    connection.close()
threads = [threading.Thread(target=start) for _ in range(4)]
for thread in threads: thread.start()
open(ready, "w").close()
for thread in threads: thread.join()
print(json.dumps(answers))
"""


@step(name="o37.ship")
def ship(order_id: int) -> int:
    shipped.append(order_id)
    return order_id


@workflow(name="o37.fulfil")
def fulfil(order_id: int) -> Workflow[int]:
    return (yield from ship(order_id))


shipped: list[int] = []


def test_o37_twenty_threads_start_one_instance_and_its_step_runs_once(pump: Pump) -> None:
    shipped.clear()
    raised: list[BaseException] = []

    def start() -> WorkflowHandle[int]:
        with connection.execute_wrapper(noting(raised)):
            return fulfil.using(key="order-7").start(7)

    handles = at_once(*[start] * THREADS)
    assert [handle for handle in handles if isinstance(handle, BaseException)] == []
    assert len({handle.id for handle in handles}) == 1
    assert sum(handle.created for handle in handles) == 1
    assert raised == [], "the race was decided by an error that was caught"
    assert_one_row()
    pump.finish()
    assert handles[0].result(timeout=0) == 7
    assert shipped == [7]


def test_o37_two_processes_start_one_instance(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    env = {**os.environ, "DJANGO_SETTINGS_MODULE": "tests.project.settings"}
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", STARTER, str(gate), str(tmp_path / f"ready-{number}")],
            cwd=ROOT, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        for number in range(PROCESSES)
    ]  # fmt: skip
    try:
        eventually(lambda: len(list(tmp_path.glob("ready-*"))) == PROCESSES, "two processes at the gate")
        gate.touch()
        outputs = [process.communicate(timeout=60) for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait()
    answers = [answer for out, err in outputs for answer in json.loads(out or json.dumps([[err, None]]))]
    assert len(answers) == 4 * PROCESSES
    assert sorted(created for _, created in answers) == [False] * (4 * PROCESSES - 1) + [True], answers
    assert len({found for found, _ in answers}) == 1
    assert_one_row()


def test_o37_a_second_start_waits_at_the_key_row_for_the_first_and_takes_its_instance() -> None:
    first, second = start_while_another_is_open(rolled_back=False)
    assert (second.id, second.created) == (first.id, False)
    assert_one_row()


def test_o37_a_second_start_that_waited_for_one_that_was_rolled_back_is_the_first() -> None:
    first, second = start_while_another_is_open(rolled_back=True)
    assert (second.id != first.id, second.created) == (True, True)
    assert_one_row()


def test_o37_the_loser_of_a_race_can_go_on_in_its_transaction() -> None:
    fulfil.using(key="order-7").start(7)
    with transaction.atomic():
        handle = fulfil.using(key="order-7").start(7)
        assert not handle.created
        assert WorkflowInstance.objects.count() == 1  # a transaction broken by a caught error would refuse this
    assert_one_row()


def test_o37_the_database_itself_refuses_a_second_open_instance_with_one_key() -> None:
    handle = fulfil.using(key="order-7").start(7)
    row = WorkflowInstance.objects.get(pk=handle.id)
    other = WorkflowInstance.objects.get(pk=fulfil.start(7).id)
    other.open_key = row.open_key
    with pytest.raises(IntegrityError), transaction.atomic():
        other.save()


def start_while_another_is_open(*, rolled_back: bool) -> tuple[WorkflowHandle[int], WorkflowHandle[int]]:
    """The handles of a start whose transaction stays open, and of one that came meanwhile."""
    second: list[WorkflowHandle[int]] = []
    asked = threading.Event()

    def start() -> None:
        try:
            connection.ensure_connection()
            with connection.execute_wrapper(telling(asked)):
                second.append(fulfil.using(key="order-7").start(7))
        finally:
            connection.close()

    thread = threading.Thread(target=start)
    with transaction.atomic():
        first = fulfil.using(key="order-7").start(7)
        thread.start()
        assert asked.wait(30)
        thread.join(0.3)
        assert thread.is_alive(), "the second start did not wait for the first"
        transaction.set_rollback(rolled_back)
    thread.join(30)
    return first, second[0]


def noting(raised: list[BaseException]) -> Any:
    """For ``execute_wrapper``: keep every IntegrityError, caught by whomever."""

    def wrapper(execute: Any, sql: Any, params: Any, many: Any, context: Any) -> Any:
        try:
            return execute(sql, params, many, context)
        except IntegrityError as error:
            raised.append(error)
            raise

    return wrapper


def telling(asked: threading.Event) -> Any:
    """For ``execute_wrapper``: say that the first statement is about to go out."""

    def wrapper(execute: Any, sql: Any, params: Any, many: Any, context: Any) -> Any:
        asked.set()
        return execute(sql, params, many, context)

    return wrapper


def assert_one_row() -> None:
    assert WorkflowInstance.objects.filter(open_key__isnull=False).count() == 1
    assert WorkflowInstance.objects.count() == Mailbox.objects.count() == WorkflowKey.objects.count() == 1
