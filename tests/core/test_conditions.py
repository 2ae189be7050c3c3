"""Waits for what the body itself can see: when it is looked at, what ends it, what it may do."""

from __future__ import annotations

from typing import Any

import pytest

from durable_celery import (
    CancelRequested,
    Signal,
    StepFailed,
    Workflow,
    gather,
    now,
    race,
    set_status,
    side_effect,
    sleep,
    spawn,
    uuid4,
    wait_until,
)
from tests.core.driver import BEGIN, Driver, a, b, shown

go = Signal("go")


def test_what_is_true_already_waits_for_nothing() -> None:
    def body() -> Workflow[Any]:
        held = yield from wait_until(lambda: True, timeout=5)
        yield from a()
        return held

    run = Driver(body)
    assert shown(run.turn()) == [
        "open condition at 1 SCHEDULED", "open step core.a at 2 SCHEDULED", "end 1 SUCCEEDED true",
        "WAITING step core.a at 2",
    ]  # fmt: skip
    run.succeed("2")
    assert run.turn().value is True


def test_the_outcome_that_makes_it_true_ends_it() -> None:
    def body() -> Workflow[Any]:
        handles = []
        for command in (a(), b()):
            handles.append((yield from spawn(command)))
        held = yield from wait_until(lambda: all(handle.done for handle in handles))
        return held

    run = Driver(body)
    assert shown(run.turn())[-1] == "WAITING condition at 3"
    run.succeed("1.0")
    assert shown(run.turn()) == ["end 1 SUCCEEDED", "take 2", "WAITING condition at 3"]
    run.succeed("2.0")

    assert shown(run.turn()) == ["end 2 SUCCEEDED", "end 3 SUCCEEDED true", "take 4", "COMPLETED True"]


@pytest.mark.parametrize("late", [False, True])
def test_at_the_time_out_it_is_looked_at_once_more(late: bool) -> None:
    def body() -> Workflow[Any]:
        deadline = BEGIN.replace(minute=31 if late else 59)
        held = yield from wait_until(lambda: now() >= deadline, timeout=60)
        yield from a()
        return held

    run = Driver(body)
    assert run.turn().openings[0].due_at == BEGIN.replace(minute=31)
    run.pass_time(59)
    assert not run.has_news(), "time alone wakes nothing"
    run.pass_time(1)
    assert f"end 1 SUCCEEDED {'true' if late else 'false'}" in shown(run.turn())
    run.succeed("2")

    assert run.turn().value is late


def test_without_a_time_out_only_events_wake_it() -> None:
    def body() -> Workflow[Any]:
        return (yield from wait_until(lambda: False))

    run = Driver(body)
    assert run.turn().openings[0].due_at is None
    run.pass_time(10**6)
    assert not run.has_news()


def test_what_the_body_does_meanwhile_counts() -> None:
    seen: list[int] = []

    def body() -> Workflow[Any]:
        seen.clear()
        handle = yield from spawn(wait_until(lambda: len(seen) >= 2))
        while not handle.done:
            yield from a()
            seen.append(1)
            yield from sleep(0)
        return len(seen), (yield from handle)

    run = Driver(body, twice=False).play()
    assert run.value == (2, True)


def test_a_condition_may_be_a_member_of_a_race_and_of_a_gather() -> None:
    def body() -> Workflow[Any]:
        got: list[Any] = []

        def full() -> bool:
            return len(got) >= 1

        handle = yield from spawn(wait_until(full))
        first = yield from race(full=wait_until(full), late=sleep(5))
        got.append(first.name)
        both = yield from gather(wait_until(full), handle)
        return first.name, both

    run = Driver(body)
    run.turn()
    run.pass_time(5)
    run.turn()

    assert (run.state, run.value) == ("COMPLETED", ("late", (True, True)))
    assert run.states()["2.0"] == "CANCELLED"


def test_conditions_settle_in_the_order_they_were_yielded() -> None:
    def body() -> Workflow[Any]:
        order: list[str] = []
        handle = yield from spawn(a())
        ends = wait_until(lambda: handle.done), wait_until(lambda: handle.done)
        winner = yield from race(first=wait_until(lambda: order == ["x"]), second=ends[0], third=ends[1])
        return winner.name

    run = Driver(body)
    run.turn()
    run.succeed("1.0")
    assert run.turn().value == "second"


def test_an_error_of_the_condition_is_raised_at_the_yield_live_and_on_replay() -> None:
    def body() -> Workflow[Any]:
        handle = yield from spawn(a())
        orders: dict[str, int] = {}
        try:
            yield from wait_until(lambda: handle.done and orders["x"])
        except KeyError as error:
            yield from b(str(error))
            return "caught"

    run = Driver(body)
    run.turn()
    run.succeed("1.0")
    decision = run.turn()
    assert [(c.position, c.state) for c in decision.closings] == [("1", "SUCCEEDED"), ("2", "FAILED")]
    run.succeed("3")

    assert run.turn().value == "caught"


def test_a_cancel_ends_the_wait() -> None:
    def body() -> Workflow[Any]:
        try:
            yield from wait_until(lambda: False, timeout=100)
        except CancelRequested:
            yield from a()
            raise

    run = Driver(body)
    run.turn()
    run.cancel("why")
    assert shown(run.turn())[:2] == ["open step core.a at 2 SCHEDULED", "give up 1"]
    run.pass_time(1000)
    assert not run.has_news()


def test_cleanup_may_wait_for_a_condition_that_the_cancel_makes_true() -> None:
    def body() -> Workflow[Any]:
        asked: list[bool] = []
        handle = yield from spawn(wait_until(lambda: bool(asked)))
        try:
            yield from sleep(1000)
        except CancelRequested:
            asked.append(True)
            yield from a((yield from handle))
            raise

    run = Driver(body)
    run.turn()
    run.cancel("why")
    assert "open step core.a at 4 SCHEDULED" in shown(run.turn())


# -- what it may not do ----------------------------------------------------------------------------------------------


def generated() -> Any:
    yield


async def awaited() -> bool:
    return True


@pytest.mark.parametrize(
    ("condition", "told"),
    [
        (lambda: a(), "step core.a in the condition of wait_until, which may only look"),
        (lambda: sleep(1), "sleep in the condition of wait_until"),
        (lambda: uuid4(), "uuid4() in the condition of wait_until"),
        (lambda: set_status("x"), "set_status() in the condition of wait_until"),
        (lambda: side_effect(lambda: 1), "side_effect() in the condition of wait_until"),
        (generated, "the condition of wait_until gave a generator, expected True or False"),
        (awaited, "the condition of wait_until gave a coroutine, expected True or False"),
    ],
)
def test_a_condition_that_does_more_than_look_blocks(condition: Any, told: str) -> None:
    def body() -> Workflow[Any]:
        try:
            yield from wait_until(condition)
        except Exception:
            return "swallowed"

    run = Driver(body)
    assert told in run.turn().waiting
    assert run.state == "BLOCKED"
    assert run.entries == {}


def test_what_is_no_function_is_refused() -> None:
    def body() -> Workflow[Any]:
        yield from wait_until(True)  # type: ignore[arg-type]

    assert "wait_until takes a function without arguments, got True" in Driver(body).turn().waiting


def test_another_kind_at_its_place_blocks() -> None:
    kinds: list[Any] = [lambda: wait_until(lambda: False)]

    def body() -> Workflow[Any]:
        yield from kinds[0]()

    run = Driver(body)
    run.turn()
    kinds[0] = lambda: sleep(5)
    assert "recorded is condition, the body now asks for timer" in run.turn().waiting


def test_a_condition_sees_the_failure_a_handle_ended_with() -> None:
    def body() -> Workflow[Any]:
        handle = yield from spawn(a())
        yield from wait_until(lambda: handle.done)
        try:
            yield from handle
        except StepFailed as error:
            return error.position

    run = Driver(body)
    run.turn()
    run.fail("1.0")
    assert run.turn().value == "1.0"


def test_a_message_that_is_not_read_is_an_occasion_to_look() -> None:
    looks: list[int] = []

    def body() -> Workflow[Any]:
        yield from wait_until(lambda: looks.append(1) or len(looks) > 1)  # type: ignore[func-returns-value]
        return (yield from go.wait())

    run = Driver(body, twice=False)
    run.turn()
    looks.clear()
    run.signal("go", 5)
    assert run.turn().value == 5
