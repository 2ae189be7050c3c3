"""A body driven turn by turn: values, errors, yields in except and finally, bodies that end at once."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from durable_celery import Workflow, sleep, step
from durable_celery.core import scope
from durable_celery.core.decision import Closing, Decision, Opening
from tests.core.driver import BEGIN, Driver, a, b

TERMS = (
    '{"retry":{"initial_interval":2.0,"backoff_coefficient":2.0,"maximum_interval":600.0,"maximum_attempts":5,'
    '"jitter":true,"non_retryable":[],"retry_on":[]},"start_to_close":300.0,"on_lost":"rerun"}'
)


def step_at(position: str, name: str, args: str, **more: Any) -> Opening:
    return Opening(position=position, kind="step", name=name, state="SCHEDULED", args=args, options=TERMS, **more)


def test_each_turn_opens_what_the_body_asks_for_next() -> None:
    def body(order: int) -> Workflow[tuple[int, str]]:
        first = yield from a(order)
        second = yield b(first, colour="red")
        yield from sleep(60)
        return first, second

    run = Driver(body, 7)

    assert run.turn() == Decision(
        state="WAITING", openings=(step_at("1", "core.a", "[[7],{}]"),), waiting="step core.a at 1"
    )
    run.succeed("1", 5)
    assert run.turn() == Decision(
        state="WAITING",
        openings=(step_at("2", "core.b", '[[5],{"colour":"red"}]'),),
        taken_entries={1: 0},
        waiting="step core.b at 2",
    )
    run.succeed("2", "done")
    due = BEGIN + timedelta(seconds=62)
    assert run.turn() == Decision(
        state="WAITING",
        openings=(Opening(position="3", kind="timer", state="SCHEDULED", due_at=due),),
        taken_entries={2: 0},
        waiting="sleep at 3 until 2026-11-01 08:31:02 UTC",
    )
    run.pass_time(60)
    assert run.turn() == Decision(
        state="COMPLETED",
        value=(5, "done"),
        closings=(Closing(position="3", state="SUCCEEDED", at=due),),
        taken_entries={3: 0},
    )


def test_a_step_carries_its_terms_times_queue_and_compensation() -> None:
    @step(name="core.vip")
    def charge(order: int) -> None: ...

    vip = charge.using(
        queue="vip", retry=None, schedule_to_start_timeout=5, schedule_to_close_timeout=timedelta(minutes=2), priority=3
    )

    def body() -> Workflow[None]:
        yield from vip(1).compensate_with(b(2))

    opening = Driver(body).turn().openings[0]

    assert opening.queue == "vip"
    assert opening.start_by_at == BEGIN + timedelta(seconds=5)
    assert opening.end_by_at == BEGIN + timedelta(seconds=120)
    assert '"maximum_attempts":1' in opening.options
    assert '"schedule_to_start":5.0,"schedule_to_close":120.0' in opening.options
    assert '"name": "core.b", "args": "[[2],{}]"' in opening.compensation


def test_values_are_decoded_copies_live_and_on_replay() -> None:
    seen = []

    def body() -> Workflow[bool]:
        value = yield from a()
        seen.append(value)
        value["list"].append("changed by the body")
        again = yield from b()
        return bool(value == again)

    run = Driver(body).play(lambda entry: {"list": [1, (2, 3)], "set": {4}, "bytes": b"5"})

    assert run.value is False
    assert all(type(value["list"][1]) is tuple for value in seen)
    assert all(value == {"list": [1, (2, 3), "changed by the body"], "set": {4}, "bytes": b"5"} for value in seen)
    assert len({id(value) for value in seen}) == len(seen)


def test_the_arguments_of_a_step_are_those_at_its_call() -> None:
    def body() -> Workflow[None]:
        items = [1]
        command = a(items)
        items.append(2)
        yield from command

    assert Driver(body).turn().openings[0].args == "[[[1]],{}]"


# -- helper generators ---------------------------------------------------------------------------------------------


def test_helper_generators_take_no_position_and_hand_their_value_on() -> None:
    def twice(number: int) -> Workflow[int]:
        first: int = yield from a(number)
        second: int = yield from a(first)
        return first + second

    def body() -> Workflow[int]:
        left = yield from twice(1)
        right = yield from twice(2)
        return left * right

    run = Driver(body).play(lambda entry: int(entry.position))

    assert run.value == (1 + 2) * (3 + 4)
    assert list(run.states()) == ["1", "2", "3", "4"]


def test_many_waits_in_a_row_are_one_wait_a_turn() -> None:
    def body() -> Workflow[int]:
        total: int = 0
        for number in range(100):
            total += yield from a(number)
        return total

    run = Driver(body).play(lambda entry: 1)

    assert (run.value, len(run.decisions)) == (100, 101)


def test_history_length_is_what_the_body_has_asked_for_so_far_live_and_on_replay() -> None:
    def body() -> Workflow[list[int]]:
        lengths = []
        for number in range(3):
            yield from a(number)
            lengths.append(scope.required("history_length", "").rows)
        return lengths

    run = Driver(body)
    for position in ("1", "2", "3"):
        run.turn()
        run.succeed(position)
    assert run.turn().value == [1, 2, 3]
