"""A turn that parks looks once more: what was stored while it ran woke nobody, and no clock is needed to find it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

from durable_celery import Signal, Workflow, faults, runtime, sleep, step, workflow
from durable_celery.engine import turns
from durable_celery.ports import NewMessage
from tests.pump import Pump

go_on = Signal("go_on", str)


@step
def plain() -> int:
    return 1


@workflow
def waiting() -> Workflow[str]:
    yield from plain()
    return (yield from go_on.wait())


@workflow
def only_waiting() -> Workflow[str]:
    return (yield from go_on.wait())


@workflow
def timed() -> Workflow[str]:
    yield from sleep(0.5)
    return "awake"


def before_the_commit(nth: int, act: Callable[[], Any]) -> None:
    """Let somebody else act between the load and the commit of the nth turn from now."""
    reached = []

    def hook(name: str) -> None:
        if name == "turn.before_commit":
            reached.append(name)
            if len(reached) == nth:
                act()

    faults.set_hook(hook)


def send_unseen(handle: Any) -> None:
    """A message whose hint was taken, and came to nothing, before the turn that should have seen it had committed."""
    message = NewMessage(kind="signal", name="go_on", payload='"now"')
    assert runtime.current().store.send(UUID(handle.id), message, runtime.current().clock.now())


def test_a_message_that_came_while_a_turn_was_under_way_is_taken_in_without_the_clock(pump: Pump) -> None:
    handle = waiting.start()
    before_the_commit(2, lambda: send_unseen(handle))
    pump.drain()
    assert handle.result(timeout=0) == "now"


def test_a_timer_that_fell_due_while_a_turn_was_under_way_is_taken_in_without_the_tick(pump: Pump) -> None:
    handle = timed.start()

    def later() -> None:
        pump.now += pump.settings.tick

    before_the_commit(1, later)
    pump.drain()
    assert handle.status == "COMPLETED"


def test_whoever_loses_to_another_turn_looks_again(pump: Pump) -> None:
    def win_and_send() -> None:
        faults.set_hook(None)
        turns.advance(UUID(handle.id))
        send_unseen(handle)

    handle = only_waiting.start()
    before_the_commit(1, win_and_send)
    pump.drain()
    assert handle.result(timeout=0) == "now"
