"""Updates from several senders while workers take turns: each is answered exactly once, and all senders agree."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from uuid import UUID

import pytest
from django.db import connection

from durable_celery import InstanceClosed, Signal, UpdateRejected, Workflow, faults, query, update, workflow
from durable_celery.engine import turns
from tests.pump import Pump
from tests.store.making import at_once

end = Signal("at_once.end")


@workflow
def counter() -> Workflow[list[int]]:
    taken: list[int] = []

    def add(number: int) -> int:
        taken.append(number)
        return len(taken)

    def new(number: int) -> None:
        if number in taken:
            raise ValueError(f"{number} was there")

    update("add", add, new)
    query("taken", lambda: taken)
    yield from end.wait(timeout=86400)
    return taken


@contextmanager
def working(handle: Any) -> Iterator[None]:
    """A worker that takes turns in another thread until the block ends."""
    done = threading.Event()

    def work() -> None:
        try:
            while not done.is_set():
                turns.advance(UUID(handle.id))
                done.wait(0.002)
        finally:
            connection.close()

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join(30)


@pytest.fixture
def handle(pump: Pump) -> Any:
    handle = counter.start()
    pump.drain()
    return handle


def test_updates_from_many_senders_while_turns_commit_are_answered_once_each(handle: Any) -> None:
    with working(handle):
        answers = at_once(*[lambda n=n: handle.update("add", n, timeout=30) for n in range(8)])
    assert sorted(answers) == list(range(1, 9))
    taken = handle.query("taken")
    assert sorted(taken) == list(range(8))
    assert [taken[answer - 1] for answer in answers] == list(range(8))


def test_two_senders_with_one_update_id_get_one_answer(handle: Any) -> None:
    with working(handle):
        for number in range(5):
            answers = at_once(*[
                lambda n=number: handle.update("add", n, update_id=f"id-{n}", timeout=30) for _ in range(3)
            ])  # fmt: skip
            assert answers == [number + 1] * 3
    assert handle.query("taken") == list(range(5))


def test_two_senders_with_one_update_id_are_both_told_of_its_rejection(handle: Any) -> None:
    with working(handle):
        assert handle.update("add", 7, timeout=30) == 1
        for number in range(5):
            answers = at_once(*[
                lambda n=number: handle.update("add", 7, update_id=f"no-{n}", timeout=30) for _ in range(3)
            ])  # fmt: skip
            assert [type(answer) for answer in answers] == [UpdateRejected] * 3
            assert {answer.message for answer in answers} == {"7 was there"}
    assert handle.query("taken") == [7]


@pytest.mark.parametrize(
    "point",
    [
        "turn.before_body",
        "turn.before_commit",
        # SQLite has one writer: none can send inside another's transaction.
        pytest.param("turn.in_transaction", marks=pytest.mark.server),
        "turn.after_commit",
    ],
)
def test_an_update_sent_while_a_turn_commits_is_answered_exactly_once(pump: Pump, handle: Any, point: str) -> None:
    sent: list[Any] = []

    def reach(name: str) -> None:
        if name == point and not sent:
            sent.append(None)
            sent.extend(at_once(lambda: handle.update("add", 2, update_id="second", wait=False)))

    faults.set_hook(reach)
    handle.update("add", 1, update_id="first", wait=False)
    pump.drain()
    faults.set_hook(None)
    assert sent == [None, "second"]
    assert [handle.update("add", n, update_id=i, timeout=0) for n, i in ((1, "first"), (2, "second"))] == [1, 2]
    assert handle.query("taken") == [1, 2]


@pytest.mark.parametrize("point", ["turn.before_body", "turn.before_commit"])
def test_an_update_sent_while_the_last_turn_commits_is_answered_or_its_sender_is_told(
    pump: Pump, handle: Any, point: str
) -> None:
    sent: list[Any] = []

    def reach(name: str) -> None:
        if name == point and not sent:
            sent.append(None)
            sent.extend(at_once(lambda: handle.update("add", 2, update_id="late", wait=False)))

    faults.set_hook(reach)
    handle.signal("at_once.end")
    pump.drain()
    faults.set_hook(None)
    assert (sent, handle.status) == ([None, "late"], "COMPLETED")
    with pytest.raises(InstanceClosed, match="before it took update 'add' in"):
        handle.update("add", 2, update_id="late", timeout=0)
    assert handle.result(timeout=0) == []


@pytest.mark.parametrize("point", ["turn.before_commit", "turn.in_transaction", "turn.after_commit"])
def test_an_update_whose_turn_dies_is_answered_once_by_the_next(pump: Pump, handle: Any, point: str) -> None:
    pump.kill_at(point)
    handle.update("add", 1, update_id="a", wait=False)
    pump.advance_time(60)
    assert handle.update("add", 1, update_id="a", timeout=0) == 1
    assert handle.query("taken") == [1]
