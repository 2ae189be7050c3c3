from __future__ import annotations

import datetime as dt
import enum
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, NamedTuple
from uuid import UUID

import pytest

from durable_celery import (
    Signal,
    StepFailed,
    Workflow,
    WorkflowFailed,
    gather,
    sleep,
    step,
    workflow,
)
from tests.conformance.lives import ran, run, say, start
from tests.pump import BEGIN, Pump


class Color(enum.Enum):
    RED = "red"


class Size(enum.IntEnum):
    BIG = 3


class Spot(NamedTuple):
    x: int
    y: int


@dataclass
class Order:
    id: int
    lines: list[Spot] = field(default_factory=list)
    color: Color | None = None


VALUES = [
    None, True, 0, -(2**70), 1.5, "", "ä\n'\"", [1, [2]], {"a": {"b": None}}, (), (1, (2,)), {1, 2}, frozenset({"a"}),
    b"\x00\xff", Decimal("1.10"), dt.date(2026, 2, 3), dt.time(4, 5, 6, 7), dt.timedelta(days=1, microseconds=2),
    dt.datetime(2026, 2, 3, 4, 5, 6, 7, tzinfo=dt.timezone.utc),
    UUID("018f3b6e-0000-7000-8000-000000000000"), Color.RED, Size.BIG, Spot(1, 2), Order(1, [Spot(3, 4)], Color.RED),
]  # fmt: skip
word = Signal("checklist.payload")


@workflow(name="checklist.echo")
def echo(value: Any) -> Workflow[Any]:
    return (yield from say(value))


def test_values_come_back_equal_and_of_the_same_type_by_every_way(pump: Pump) -> None:
    def body(values: list[Any]) -> Any:
        by_step = yield from say(values)
        by_signal = yield from word.wait()
        by_child = yield from echo(values)
        yield from sleep(1)
        return [values, by_step, by_signal, by_child]

    handle = start(body, VALUES)
    word.send(handle, VALUES)
    pump.finish()
    for values in (*handle.result(timeout=0), *ran):
        assert values == VALUES
        assert [type(value) for value in values] == [type(value) for value in VALUES]


def test_what_the_body_sees_live_is_what_it_sees_on_replay(pump: Pump) -> None:
    made = [1, 2]

    @step(name="checklist.shared")
    def shared() -> list[int]:
        return made

    def body() -> Any:
        value = yield from shared()
        value.append(3)
        yield from sleep(1)
        return value

    assert run(pump, body) == [1, 2, 3]
    assert made == [1, 2]


@pytest.mark.parametrize("bad", [object(), float("nan"), lambda: 1, {1: "a"}], ids=["object", "nan", "lambda", "key"])
def test_a_value_that_cannot_be_kept_is_refused_with_its_path(pump: Pump, bad: Any) -> None:
    def body(value: Any) -> Any:
        yield from say(value)

    with pytest.raises(Exception, match=r"\[0\]"):
        start(body, [bad])


def test_a_result_of_a_workflow_that_cannot_be_kept_blocks(pump: Pump) -> None:
    def body() -> Any:
        yield from say("a")
        return object()

    handle = start(body)
    pump.drain()
    assert (handle.status, "object" in handle.waiting_for) == ("BLOCKED", True)


def test_an_error_crosses_with_its_type_text_cause_and_attributes(pump: Pump) -> None:
    class CardDeclined(Exception):
        def __init__(self, code: str, *, amount: int) -> None:
            super().__init__(f"declined: {code}")
            self.code, self.amount = code, amount

    @step(name="checklist.decline", retry=None)
    def decline() -> None:
        try:
            raise ConnectionError("bank")
        except ConnectionError as error:
            raise CardDeclined("51", amount=7) from error

    def body() -> Any:
        try:
            yield from decline()
        except StepFailed as error:
            told = (error.message, error.matches(CardDeclined), error.matches(ConnectionError), error.attributes)
            return *told, error.traceback

    message, is_declined, is_caused, attributes, traceback = run(pump, body)
    assert "CardDeclined" in traceback
    assert (message, is_declined, is_caused) == ("declined: 51", True, True)
    assert (attributes["code"], attributes["amount"]) == ("51", 7)


def test_a_long_history_is_replayed_to_its_end(pump: Pump) -> None:
    def body() -> Any:
        total = 0
        for n in range(60):
            a, b = yield from gather(say(n), say(n))
            total += a + b
        yield from sleep(60)
        return total

    handle = start(body)
    pump.finish()
    assert handle.result(timeout=0) == 2 * sum(range(60))
    assert (len(ran), len(handle.history())) == (120, 181)


def test_the_history_tells_what_was_done_when(pump: Pump) -> None:
    def body() -> Any:
        yield from say("a")
        yield from sleep(60)

    handle = start(body)
    pump.finish()
    first, second = handle.history()
    assert (first.position, first.kind, first.name, first.state) == ("1", "step", "checklist.say", "SUCCEEDED")
    assert (first.args, first.result, first.error, first.attempts) == ((("a",), {}), "a", None, 1)
    assert first.scheduled_at == first.started_at == first.finished_at
    assert (second.position, second.kind, second.state) == ("2", "timer", "SUCCEEDED")
    assert second.scheduled_at == BEGIN
    assert second.finished_at == BEGIN + dt.timedelta(seconds=60)
    assert (first.turn, second.turn) == (2, 3)


def test_a_message_after_the_end_changes_nothing(pump: Pump) -> None:
    def body() -> Any:
        yield from say("a")
        return "done"

    handle = start(body)
    pump.drain()
    before = handle.history()
    for hint in list(pump.sent):
        pump.deliver(hint)
    pump.advance_time(days=1)
    assert (handle.status, handle.result(timeout=0), handle.history()) == ("COMPLETED", "done", before)
    assert ran == ["a"]


def test_a_failed_workflow_is_retried_from_its_failure(pump: Pump) -> None:
    luck = [False]

    @step(name="checklist.lucky", retry=None)
    def lucky() -> str:
        if not luck[0]:
            raise OSError("down")
        return "up"

    def body() -> Any:
        yield from say("once")
        return (yield from lucky())

    handle = start(body)
    pump.finish()
    with pytest.raises(WorkflowFailed):
        handle.result(timeout=0)
    luck[0] = True
    handle.retry()
    pump.finish()
    assert (handle.result(timeout=0), ran) == ("up", ["once"])


def test_a_redelivered_start_starts_nothing_twice(pump: Pump) -> None:
    def body() -> Any:
        yield from say("once")

    handle = start(body)
    pump.drain()
    for hint in [hint for hint in pump.sent if hint.instance]:
        pump.deliver(hint)
    assert (handle.status, ran) == ("COMPLETED", ["once"])


def test_a_body_without_a_yield_completes(pump: Pump) -> None:
    def body() -> str:
        return "plain"

    assert run(pump, body) == "plain"
