from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from durable_celery import StepFailed, WorkflowFailed, current_step, register_type, sleep, step
from tests.conformance.lives import fail, ran, run, say
from tests.pump import Pump


def test_a_step_succeeds_with_its_result(pump: Pump) -> None:
    def body() -> Any:
        return (yield from say("hello"))

    assert run(pump, body) == "hello"
    assert ran == ["hello"]


def test_a_step_takes_arguments_by_position_and_by_name(pump: Pump) -> None:
    @step(name="checklist.both")
    def both(a: int, *, b: int = 2, c: int = 3) -> Any:
        return a, b, c

    def body() -> Any:
        return (yield from both(1, c=5))

    assert run(pump, body) == (1, 2, 5)


def test_a_step_may_return_nothing(pump: Pump) -> None:
    def body() -> Any:
        return (yield from say(None))

    assert run(pump, body) is None


def test_a_plain_yield_gives_the_same_as_yield_from(pump: Pump) -> None:
    def body() -> Any:
        a = yield say("a")
        return a, (yield from say("b"))

    assert run(pump, body) == ("a", "b")


def test_steps_in_sequence_run_in_order_and_once(pump: Pump) -> None:
    def body() -> Any:
        total = 0
        for n in range(5):
            total += yield from say(n)
            yield from sleep(10)
        return total

    assert run(pump, body) == 10
    assert ran == [0, 1, 2, 3, 4]


def test_the_same_step_twice_is_two_steps(pump: Pump) -> None:
    keys: list[str] = []

    @step(name="checklist.keyed")
    def keyed() -> int:
        keys.append(current_step().idempotency_key)
        return len(keys)

    def body() -> Any:
        return (yield from keyed()), (yield from keyed())

    assert run(pump, body) == (1, 2)
    assert len(set(keys)) == 2


def test_a_body_goes_on_after_a_failure_it_caught(pump: Pump) -> None:
    def body() -> Any:
        try:
            yield from fail()
        except StepFailed:
            return (yield from say("instead"))

    assert run(pump, body) == "instead"


def test_a_failure_nobody_catches_ends_the_workflow_failed(pump: Pump) -> None:
    def body() -> Any:
        yield from fail("broken")
        yield from say("never")

    with pytest.raises(WorkflowFailed, match="broken") as caught:
        run(pump, body)
    assert caught.value.matches(ValueError)
    assert ran == ["broken"]


@dataclass(frozen=True)
class Money:
    cents: int


class Point:
    def __init__(self, x: int) -> None:
        self.x = x

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Point) and other.x == self.x


def test_values_of_own_types_go_in_and_out(pump: Pump) -> None:
    register_type(Point, encode=lambda point: point.x, decode=Point, aliases=("old.Point",))
    seen: list[Any] = []

    def body() -> Any:
        money = yield from say(Money(5))
        seen.append((yield from say(Point(money.cents))))
        yield from sleep(1)
        return seen[-1]

    assert run(pump, body) == Point(5)
    assert ran == [Money(5), Point(5)]
    assert all(point == Point(5) for point in seen)


def test_a_result_that_cannot_be_kept_fails_the_step(pump: Pump) -> None:
    @step(name="checklist.odd", retry=3)
    def odd() -> Any:
        ran.append("odd")
        return object()

    def body() -> Any:
        try:
            yield from odd()
        except StepFailed as error:
            return error.error_type, "object" in error.message

    assert run(pump, body) == ("durable_celery.errors.NotSerializable", True)
    assert ran == ["odd"]


def test_an_async_step_runs_like_any_other(pump: Pump) -> None:
    @step(name="checklist.async")
    async def asynchronous(value: int) -> int:
        return value + 1

    def body() -> Any:
        return (yield from asynchronous(1))

    assert run(pump, body) == 2
