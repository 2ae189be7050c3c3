"""O-31: a signal sent while an instance goes on as a new run is not lost, not refused, and in order."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import combinations
from typing import Any
from uuid import UUID

import pytest
from django.db import connection, transaction

from django_app.models import Message, WorkflowInstance
from durable_celery import Signal, Workflow, continue_as_new, faults, workflow
from durable_celery.engine import turns
from tests.pump import Pump

inc = Signal("inc", int)
SENDERS, EACH, WORKERS = 4, 50, 2
ALL = SENDERS * EACH


@workflow
def counting(total: int = 0) -> Workflow[int]:
    if total == ALL:
        return total
    value = yield from inc.wait()  # durable: ok
    return (yield from continue_as_new(total + value))


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """A signal that was accepted, and between which moments."""

    id: str
    began: float
    ended: float


def test_o31_four_senders_at_full_speed_meet_a_run_that_ends_with_each_message(pump: Pump) -> None:
    handle = counting.start()
    pump.drain()
    barrier = threading.Barrier(SENDERS + WORKERS)
    sent: list[Sent] = []
    errors: list[BaseException] = []
    over = threading.Event()

    def send(sender: int) -> None:
        for number in range(EACH):
            began, signal_id = time.perf_counter(), f"{sender}-{number:02}"
            inc.send(handle, 1, signal_id=signal_id)
            sent.append(Sent(id=signal_id, began=began, ended=time.perf_counter()))

    def work() -> None:
        while not over.is_set():
            try:
                hint = pump.queue.pop(0)
            except IndexError:
                over.wait(0.001)
            else:
                assert hint.instance is not None
                turns.advance(hint.instance)

    senders = [beside(barrier, errors, send, number) for number in range(SENDERS)]
    workers = [beside(barrier, errors, work) for _ in range(WORKERS)]
    for thread in senders:
        thread.join(60)
    over.set()
    for thread in workers:
        thread.join(60)
    pump.finish()

    assert errors == [], "no call raises"
    assert len(sent) == ALL
    assert handle.result(timeout=0) == ALL
    assert [state for _, state in runs(handle.id)] == ["CONTINUED"] * ALL + ["COMPLETED"]
    order = delivered(handle.id)
    assert sorted(order) == sorted(each.id for each in sent), "each once"
    for sender in range(SENDERS):
        mine = [signal_id for signal_id in order if signal_id.startswith(f"{sender}-")]
        assert mine == sorted(mine)
    place = {signal_id: n for n, signal_id in enumerate(order)}
    for one, other in combinations(sorted(sent, key=lambda each: each.ended), 2):
        if one.ended < other.began:
            assert place[one.id] < place[other.id], f"{one.id} had arrived before {other.id} was sent"


def test_o31_what_is_unread_goes_on_in_the_transaction_that_ends_the_run(pump: Pump) -> None:
    handle = counting.start(ALL - 3)
    pump.drain()
    for number in range(3):
        inc.send(handle, 1, signal_id=f"n-{number}")
    handle.signal("other")
    seen: list[Any] = []

    def look(name: str) -> None:
        if name == "turn.in_transaction" and len(runs(handle.id)) == 2 and not seen:
            waiting = Message.objects.filter(chain_id=handle.id, taken_turn__isnull=True).order_by("id")
            seen.append(list(waiting.values_list("name", flat=True)))
            raise KeyboardInterrupt  # the process dies before its commit

    faults.set_hook(look)
    with pytest.raises(KeyboardInterrupt):
        turns.advance(UUID(handle.id))
    faults.set_hook(None)
    assert seen == [["inc", "inc", "other"]]
    assert runs(handle.id) == [(1, "WAITING")], "nothing of it was committed"
    assert Message.objects.filter(taken_turn__isnull=True).count() == 4
    pump.finish()
    assert handle.result(timeout=0) == ALL
    assert delivered(handle.id) == ["n-0", "n-1", "n-2"]


@pytest.mark.server  # SQLite has one writer at a time
def test_o31_a_sender_whose_transaction_stays_open_keeps_no_run_from_going_on(pump: Pump) -> None:
    handle = counting.start(ALL - 3)
    pump.drain()
    stored, go_on = threading.Event(), threading.Event()
    errors: list[BaseException] = []

    def send() -> None:
        with transaction.atomic():
            inc.send(handle, 1, signal_id="held")
            stored.set()
            assert go_on.wait(30)

    sender = beside(threading.Barrier(1), errors, send)
    assert stored.wait(30)
    for number in range(2):
        inc.send(handle, 1, signal_id=f"n-{number}")
        pump.drain()
    assert [state for _, state in runs(handle.id)] == ["CONTINUED", "CONTINUED", "WAITING"]
    go_on.set()
    sender.join(30)
    pump.finish()
    assert errors == []
    assert handle.result(timeout=0) == ALL
    assert delivered(handle.id) == ["n-0", "n-1", "held"]


def beside(
    barrier: threading.Barrier, errors: list[BaseException], act: Callable[..., Any], *args: Any
) -> threading.Thread:
    """A thread that does ``act`` once all are at the barrier."""

    def run() -> None:
        try:
            connection.ensure_connection()
            barrier.wait(30)
            act(*args)
        except BaseException as error:  # noqa: BLE001 - handed to the test
            errors.append(error)
        finally:
            connection.close()

    thread = threading.Thread(target=run)
    thread.start()
    return thread


def runs(chain_id: str) -> list[tuple[int, str]]:
    found = WorkflowInstance.objects.filter(chain_id=chain_id).order_by("run_number")
    return list(found.values_list("run_number", "state"))


def delivered(chain_id: str) -> list[str]:
    """The ids of the signals in the order the runs got them."""
    number = dict(WorkflowInstance.objects.filter(chain_id=chain_id).values_list("pk", "run_number"))
    messages = Message.objects.filter(chain_id=chain_id, delivered_turn__isnull=False)
    return [message.dedupe or "" for message in sorted(messages, key=lambda each: number[each.instance_id])]
