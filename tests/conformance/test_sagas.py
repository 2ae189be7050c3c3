"""A cancel that meets a saga while it takes things back: nothing that was paid for stays paid."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from durable_celery import CancelRequested, CompleteLater, Saga, StepFailed, complete_step, current_step, step
from tests.conformance.lives import fail, ran, say, start
from tests.pump import Pump


@step(name="checklist.undo_by_hand")
def undo_by_hand(name: str) -> None:
    ran.append(current_step().token)
    raise CompleteLater


def booked() -> Any:
    """Three bookings; the undo of the newest is handed to the outside."""
    saga = Saga()
    for name in ("a", "b"):
        yield from say(name)
        saga.add(say(f"undo {name}"))
    saga.add(undo_by_hand("c"))
    return saga


def given_up() -> Any:
    saga = yield from booked()
    try:
        yield from fail("broken")
    except StepFailed:
        yield from saga.compensate()
        raise


def given_up_once_more() -> Any:
    saga = yield from booked()
    try:
        try:
            yield from fail("broken")
        except StepFailed:
            yield from saga.compensate()
            raise
    except CancelRequested:
        yield from saga.compensate()
        raise


@pytest.mark.parametrize("body", [given_up, given_up_once_more])
def test_a_cancel_while_a_saga_compensates_stops_none_of_its_undos(pump: Pump, body: Callable[[], Any]) -> None:
    handle = start(body)
    pump.drain()
    assert handle.cancel() == "requested"
    pump.drain()
    complete_step(ran[-1])
    pump.drain()
    assert (handle.status, ran[-2:]) == ("CANCELLED", ["undo b", "undo a"])
    assert [entry.state for entry in handle.history()].count("SUCCEEDED") == 5


def test_an_undo_nobody_has_claimed_is_not_given_up_by_a_cancel(pump: Pump) -> None:
    handle = start(given_up)
    while not any(hint.name == undo_by_hand.name for hint in pump.queue):
        pump.deliver(pump.ready()[0])
    assert handle.cancel() == "requested"
    pump.choose = lambda ready: next((n for n, hint in enumerate(ready) if hint.step is None), 0)  # turns first
    pump.drain()
    complete_step(ran[-1])
    pump.drain()
    assert (handle.status, ran[-2:]) == ("CANCELLED", ["undo b", "undo a"])
