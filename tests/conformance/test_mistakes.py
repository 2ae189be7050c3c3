from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from durable_celery import (
    Saga,
    Signal,
    UsageError,
    continue_as_new,
    gather,
    map_step,
    poll,
    query,
    race,
    sleep,
    sleep_until,
    spawn,
    update,
    wait_until,
)
from tests.conformance.lives import ran, run, say, start
from tests.pump import Pump

five: Any = 5
fives: Any = [5]


def helper() -> Any:
    yield from say("never")


def yields(what: Callable[[], Any]) -> Any:
    yield what()


def yields_from(what: Callable[[], Any]) -> Any:
    yield from what()


def drops(what: Callable[[], Any]) -> Any:
    what()
    yield from say("never")


MISTAKES: list[tuple[Callable[..., Any], Callable[[], Any], str]] = [
    (yields, lambda: [say("a"), say("b")], "gather"),
    (yields_from, lambda: [say("a"), say("b")], "gather"),
    (drops, lambda: say("a"), "yield from"),
    (yields, helper, "yield from helper"),
    (yields, lambda: 5, "only commands can be yielded"),
    (yields, lambda: None, "only commands can be yielded"),
]


@pytest.mark.parametrize("number", range(len(MISTAKES)), ids=[fix for _, _, fix in MISTAKES])
def test_a_mistake_at_a_yield_names_line_and_fix_and_runs_nothing(pump: Pump, number: int) -> None:
    mistake, what, fix = MISTAKES[number]

    def body() -> Any:
        return (yield from mistake(what))

    handle = start(body)
    pump.drain()
    assert (handle.status, ran) == ("BLOCKED", [])
    assert "UsageError" in handle.waiting_for
    assert "line " in handle.waiting_for
    assert fix in handle.waiting_for


BAD_VALUES: list[Callable[[], Any]] = [
    lambda: query("q", five),
    lambda: update("u", five),
    lambda: update("u", len, validate=five),
    lambda: Signal("s").on(five),
    lambda: Signal("s").wait(default=five),
    lambda: Signal("s").wait(timeout=-1),
    lambda: gather(five),
    lambda: gather(fives),
    lambda: gather(limit=0),
    lambda: gather(needed=1),
    lambda: gather(tolerate=-1),
    lambda: race(),
    lambda: spawn(five),
    lambda: sleep(),
    lambda: sleep_until(five),
    lambda: wait_until(five),
    lambda: poll(five, until=bool),
    lambda: map_step(five, [1]),
    lambda: map_step(say, five),
    lambda: map_step(say, {1, 2}),
    lambda: continue_as_new(workflow=five),
    lambda: Saga().add(five),
]


def test_a_bad_value_is_a_usage_error_and_a_value_error(pump: Pump) -> None:
    def body() -> Any:
        for number, wrong in enumerate(BAD_VALUES):
            try:
                wrong()
            except UsageError as error:
                if not isinstance(error, ValueError):
                    return number, str(error)
            else:
                return number, "nothing was raised"
        return (yield from say("all are refused"))

    assert run(pump, body) == "all are refused"
