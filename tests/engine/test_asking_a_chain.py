"""Queries, updates and handlers follow a chain of continued runs."""

from __future__ import annotations

from typing import Any

import pytest

from django_app.models import Message
from durable_celery import (
    InstanceClosed,
    Signal,
    UpdateRejected,
    Workflow,
    continue_as_new,
    current_workflow,
    gather,
    get_handle,
    query,
    sleep,
    update,
    wait_until,
    workflow,
)
from tests.pump import Pump, release

inc = Signal("chain.inc", int)
NO_RUNS = 4


@workflow(name="asking.laps")
def laps(lap: int, total: int) -> Workflow[int]:
    got: list[int] = []
    added: list[int] = []

    def add(number: int) -> int:
        added.append(number)
        return total + sum(got) + sum(added)

    def small(number: int) -> None:
        if number > 100:
            raise ValueError(f"{number} in lap {lap}")

    inc.on(got.append)
    update("add", add, small)
    query("lap", lambda: lap)
    query("total", lambda: total + sum(got) + sum(added))
    yield from wait_until(lambda: len(got) >= 2, timeout=86400)
    if lap == NO_RUNS:
        return total + sum(got) + sum(added)
    return (yield from continue_as_new(lap + 1, total + sum(got) + sum(added)))


def answer(handle: Any, pump: Pump, *args: Any, **options: Any) -> Any:
    update_id = handle.update("add", *args, wait=False, **options)
    pump.drain()
    return handle.update("add", *args, update_id=update_id, timeout=0)


def test_a_query_sees_the_body_know_what_it_knew_in_its_turn(pump: Pump) -> None:
    ids: list[str] = []

    def child() -> Workflow[Any]:
        info = current_workflow()
        ids.append(info.id)
        query("parent", lambda: info.parent_id)
        yield from wait_until(lambda: False)

    made = release("asking.child", child)

    def parent(lap: int = 1) -> Workflow[Any]:
        if lap == 1:
            return (yield from continue_as_new(2))
        return (yield from made())

    def numbered(lap: int = 1) -> Workflow[Any]:
        info = current_workflow()
        query("number", lambda: info.run_number)
        yield from (sleep(1) if info.run_number == 1 else gather(sleep(1)))
        if lap == 1:
            return (yield from continue_as_new(2))
        yield from wait_until(lambda: False)

    handle = release("asking.parent", parent).start()
    other = release("asking.numbered", numbered).start()
    pump.finish()
    assert other.query("number") == 2
    assert get_handle(ids[0]).query("parent") == handle.id != handle.run_id


def test_a_query_asks_the_newest_run(pump: Pump) -> None:
    handle = laps.start(1, 0)
    pump.drain()
    assert (handle.query("lap"), handle.query("total")) == (1, 0)
    for number in (1, 2):
        inc.send(handle, number)
    pump.drain()
    assert (handle.query("lap"), handle.query("total")) == (2, 3)
    assert get_handle(handle.run_id).query("lap") == 2


def test_signals_that_no_handler_got_go_to_the_handler_of_the_next_run(pump: Pump) -> None:
    handle = laps.start(1, 0)
    for number in range(1, 8):
        inc.send(handle, number)
    pump.drain()
    assert (handle.query("lap"), handle.query("total")) == (4, 28)
    inc.send(handle, 8)
    pump.drain()
    assert handle.result(timeout=0) == 36


def test_an_update_goes_to_the_newest_run_and_its_answer_is_found_for_the_whole_chain(pump: Pump) -> None:
    handle = laps.start(1, 0)
    pump.drain()
    first = handle.run_id
    assert answer(handle, pump, 10, update_id="ten") == 10
    for number in (1, 2):
        inc.send(handle, number)
    pump.drain()
    assert (handle.query("lap"), handle.run_id != first) == (2, True)
    assert answer(handle, pump, 20, update_id="twenty") == 33
    for target in (handle, get_handle(first), get_handle(handle.run_id)):
        assert target.update("add", 10, update_id="ten", timeout=0) == 10
    assert handle.query("total") == 33
    with pytest.raises(UpdateRejected, match="101 in lap 2"):
        answer(handle, pump, 101)


def test_an_update_that_comes_while_a_run_continues_is_taken_in_by_the_next(pump: Pump) -> None:
    handle = laps.start(1, 0)
    pump.drain()
    for number in (1, 2):
        inc.send(handle, number)
    handle.update("add", 10, update_id="late", wait=False)  # in the turn that continues, after what makes it
    pump.drain()
    assert handle.query("lap") == 2
    assert handle.update("add", 10, update_id="late", timeout=0) == 13
    assert Message.objects.get(kind="update").taken_turn == 1


def test_the_end_of_the_chain_closes_it_to_updates_and_keeps_answers(pump: Pump) -> None:
    handle = laps.start(4, 0)
    pump.drain()
    assert answer(handle, pump, 10, update_id="ten") == 10
    for number in (1, 2):
        inc.send(handle, number)
    pump.drain()
    assert handle.status == "COMPLETED"
    assert handle.update("add", 10, update_id="ten", timeout=0) == 10
    with pytest.raises(InstanceClosed):
        handle.update("add", 1, timeout=0)
    assert handle.query("total") == 13
