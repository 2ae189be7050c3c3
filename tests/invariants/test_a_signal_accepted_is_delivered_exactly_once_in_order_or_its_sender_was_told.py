"""A signal accepted is delivered exactly once, in order, or its instance was closed and the sender told."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from django.db import connection
from hypothesis import event, given
from hypothesis import strategies as st

from django_app.models import Message
from durable_celery import InstanceClosed, Signal, Workflow, faults, step, workflow
from tests.invariants.examples import few
from tests.pump import Pump, clear_tables

pytestmark = pytest.mark.django_db(transaction=True)

go = Signal("go", int)
EMPTY = -1
POINTS = ("turn.before_body", "turn.before_commit", "turn.in_transaction", "turn.after_commit", "publish.before",
          "claim.before", "body.before", "body.after", "record.before", "record.after")  # fmt: skip


@step
def work(number: int) -> int:
    return number


@workflow
def collecting(steps: int) -> Workflow[list[int]]:
    """Takes everything that is there between its steps, and ends with nothing unread."""
    received: list[int] = []
    for number in range(steps):
        yield from work(number)
        while (got := (yield from go.wait(timeout=0, default=EMPTY))) != EMPTY:
            received.append(got)
    return received


@few
@given(
    steps=st.integers(1, 3),
    moments=st.lists(st.tuples(st.sampled_from(POINTS), st.integers(1, 4)), max_size=12),
    dropped=st.lists(st.booleans(), max_size=20),
    repeated=st.booleans(),
)
def test_a_signal_accepted_is_delivered_exactly_once_in_order_or_its_sender_was_told(
    steps: int, moments: list[tuple[str, int]], dropped: list[bool], repeated: bool
) -> None:
    clear_tables()
    accepted: list[int] = []
    refused: list[int] = []
    with Pump() as pump:
        drops = iter(dropped)
        pump.fate = lambda hint: () if next(drops, False) else (0.0,)
        handle = collecting.start(steps)
        reached: dict[str, int] = {}

        def send(number: int) -> None:
            try:
                for _ in range(2 if repeated else 1):
                    go.send(handle, number, signal_id=f"id {number}")
                accepted.append(number)
            except InstanceClosed:
                if number not in refused:
                    refused.append(number)

        def at_point(point: str) -> None:
            if connection.in_atomic_block:
                return  # another process cannot send from inside this one's transaction
            reached[point] = reached.get(point, 0) + 1
            for number, moment in enumerate(moments):
                if moment == (point, reached[point]):
                    send(number)

        faults.set_hook(at_point)
        pump.finish()
        faults.set_hook(None)
        send(len(moments))

        assert handle.status == "COMPLETED"
        assert handle.result(timeout=0) == accepted
        assert refused[-1] == len(moments)
        assert Message.objects.filter(instance_id=handle.id).count() == len(accepted)
        assert not Message.objects.filter(instance_id=handle.id, taken_turn__isnull=True).exists()
        event(f"{len(accepted)} accepted, {len(refused)} refused")


def test_senders_in_other_threads_are_heard_or_told() -> None:
    clear_tables()
    with Pump() as pump:
        handle = collecting.start(6)
        results: dict[int, tuple[list[int], list[int]]] = {}
        barrier = threading.Barrier(4)

        def send_many(sender: int) -> None:
            accepted: list[int] = []
            refused: list[int] = []
            barrier.wait(30)
            for number in range(sender * 100, sender * 100 + 8):
                try:
                    go.send(handle, number)
                    accepted.append(number)
                except InstanceClosed:
                    refused.append(number)
            results[sender] = accepted, refused
            connection.close()

        threads = [threading.Thread(target=send_many, args=(sender,)) for sender in range(3)]
        for thread in threads:
            thread.start()
        barrier.wait(30)
        pump.finish()
        for thread in threads:
            thread.join(60)
        pump.finish()

        received: Any = handle.result(timeout=0)
        assert sorted(received) == sorted(number for accepted, _ in results.values() for number in accepted)
        for sender, (accepted, refused) in results.items():
            assert [number for number in received if number // 100 == sender] == accepted
            assert len(accepted) + len(refused) == 8
