"""Handlers of signals, and warn_after: pure, in memory."""

from __future__ import annotations

from collections.abc import Generator
from datetime import timedelta
from typing import Any

import pytest

from durable_celery import Signal, Workflow, WorkflowFailed, now, query, random, side_effect, update, uuid4
from durable_celery.core import journal
from tests.core.driver import BEGIN, Driver, a

go = Signal("go")


# -- signals -----------------------------------------------------------------------------------------------------------


def test_a_handler_gets_each_payload_in_order_before_the_body_resumes() -> None:
    def body() -> Workflow[Any]:
        seen: list[Any] = []
        go.on(seen.append)
        yield from a()
        first = list(seen)
        yield from a()
        return first, seen

    run = Driver(body)
    run.turn()
    run.signal("go", 1)
    run.signal("go", 2)
    run.succeed("1")
    run.turn()
    run.signal("go", 3)
    run.turn()
    run.succeed("2")
    run.turn()
    assert run.value == ([1, 2], [1, 2, 3])


def test_messages_that_came_before_the_handler_go_to_it_first() -> None:
    def body() -> Workflow[Any]:
        yield from a()
        seen: list[Any] = []
        go.on(seen.append)
        at_once = list(seen)
        yield from a()
        return at_once, seen

    run = Driver(body)
    run.signal("go", 1)
    run.turn()
    run.signal("go", 2)
    run.succeed("1")
    run.turn()
    run.signal("go", 3)
    run.succeed("2")
    run.turn()
    assert run.value == ([1, 2], [1, 2, 3])


def test_a_payload_is_a_copy_and_a_second_handler_replaces_the_first() -> None:
    def body() -> Workflow[Any]:
        first: list[Any] = []
        second: list[Any] = []
        go.on(first.append)
        yield from a()
        go.on(second.append)
        yield from a()
        return first, second

    run = Driver(body)
    given = {"items": [1]}
    run.signal("go", given)
    run.turn()
    run.succeed("1")
    run.turn()
    run.signal("go", 2)
    run.succeed("2")
    run.turn()
    assert run.value == ([{"items": [1]}], [2])
    assert run.value[0][0] is not given


def test_dice_in_a_handler_are_the_same_on_replay() -> None:
    def body() -> Workflow[Any]:
        seen: list[Any] = []
        go.on(lambda payload: seen.append((uuid4(), random().random(), side_effect(lambda: "once"), now())))
        yield from a()
        between = uuid4()
        yield from a()
        return seen, between

    run = Driver(body)
    run.turn()
    run.signal("go")
    run.turn()
    run.pass_time(5)
    run.signal("go")
    run.succeed("1")
    run.turn()
    run.succeed("2")
    run.turn()
    seen, between = run.value
    assert len({x for row in seen for x in (row[0], row[1])} | {between}) == 5
    assert [row[3] for row in seen] == [BEGIN, BEGIN + timedelta(seconds=6)]


@pytest.mark.parametrize("error", [WorkflowFailed("no"), LookupError("no")])
def test_a_failure_raised_by_a_handler_ends_the_run_as_if_it_had_left_the_body(error: Exception) -> None:
    def handler(payload: Any) -> None:
        raise type(error)("no")

    def body() -> Workflow[None]:
        go.on(handler)
        yield from a()

    run = Driver(body, fails_on=(LookupError,))
    run.turn()
    run.signal("go")
    decision = run.turn()
    assert (run.state, decision.taken_messages) == ("FAILED", {1: 0})
    assert run.error == f"{type(error).__name__}: no"
    assert run.states() == {"1": "CANCELLED"}
    assert run.decide(recorded_only=True).state == "FAILED"


def test_any_other_exception_of_a_handler_blocks_at_its_line_and_takes_nothing_in() -> None:
    def handler(payload: Any) -> None:
        raise ValueError("a bug")

    def body() -> Workflow[None]:
        go.on(handler)
        yield from a()

    run = Driver(body)
    run.turn()
    run.signal("go")
    decision = run.turn()
    assert (decision.state, decision.taken_messages, run.messages[0].taken_turn) == ("BLOCKED", {}, None)
    assert "ValueError: a bug (handler, line" in decision.waiting


def test_a_handler_that_raises_at_its_registration_raises_there_and_the_rest_stays_unread() -> None:
    def handler(payload: Any) -> None:
        if payload == 2:
            raise ValueError("not this one")

    def body() -> Workflow[Any]:
        yield from a()
        seen: list[Any] = []
        try:
            go.on(handler)
        except ValueError:
            go.on(seen.append)
        return seen

    run = Driver(body)
    for payload in (1, 2, 3, 4):
        run.signal("go", payload)
    run.turn()
    run.succeed("1")
    run.turn()
    assert run.value == [3, 4]


@pytest.mark.parametrize("first", ["wait", "on"])
def test_a_name_has_waits_or_a_handler_never_both(first: str) -> None:
    def body() -> Workflow[None]:
        if first == "on":
            go.on(print)
        yield from go.wait(timeout=0, default=None)
        go.on(print)

    run = Driver(body)
    if first == "wait":
        run.turn()
        decision = run.turn()
    else:
        decision = run.turn()
    assert decision.state == "BLOCKED"
    assert "signal 'go' has waits and a handler" in decision.waiting


def generator(payload: Any) -> Generator[Any, Any, None]:
    yield from a()


async def coroutine(payload: Any) -> None: ...


class Callee:
    def __call__(self, payload: Any) -> Generator[Any, Any, None]:
        yield from a()


def register(kind: str, function: Any) -> None:
    if kind == "on":
        go.on(function)
    elif kind == "query":
        query("q", function)
    elif kind == "update":
        update("u", function)
    else:
        update("u", print, validate=function)


@pytest.mark.parametrize("kind", ["on", "query", "update", "validate"])
@pytest.mark.parametrize("function", [generator, coroutine, Callee(), "no function"])
def test_what_is_no_plain_function_is_refused_where_it_is_registered(kind: str, function: Any) -> None:
    def body() -> Workflow[None]:
        register(kind, function)
        yield from a()

    decision = Driver(body).turn()
    assert decision.state == "BLOCKED"
    assert "must be a plain function" in decision.waiting or "must be a function, got 'no function'" in decision.waiting


def test_a_handler_that_cannot_take_a_payload_is_refused_where_it_is_registered() -> None:
    def body() -> Workflow[None]:
        go.on(lambda: None)  # type: ignore[misc,arg-type]
        yield from a()

    decision = Driver(body).turn()
    assert "is called with 1 argument(s)" in decision.waiting


def test_a_handler_that_returns_a_generator_blocks() -> None:
    def body() -> Workflow[None]:
        go.on(lambda payload: generator(payload))
        yield from a()

    run = Driver(body)
    run.turn()
    run.signal("go")
    assert "returned a generator" in run.turn().waiting


def test_a_command_built_by_a_handler_may_be_yielded_by_the_body_and_not_dropped() -> None:
    def body(keep: bool) -> Workflow[Any]:
        commands: list[Any] = []
        go.on(lambda payload: commands.append(a(payload)) if keep else a(payload) and None)
        yield from a()
        return (yield from commands[0]) if commands else None

    kept = Driver(body, True)
    kept.turn()
    kept.signal("go", 7)
    kept.succeed("1")
    kept.turn()
    kept.succeed("2", "done")
    kept.turn()
    assert kept.value == "done"

    dropped = Driver(body, False)
    dropped.turn()
    dropped.signal("go", 7)
    dropped.succeed("1")
    assert "never yielded" in dropped.turn().waiting


# -- at the end --------------------------------------------------------------------------------------------------------


def hearing(failing: bool = False) -> Workflow[Any]:
    heard: list[Any] = []
    go.on(heard.append)
    yield from a()
    if failing:
        raise Declined(heard)
    return heard


class Declined(Exception):
    pass


def test_a_signal_that_came_after_the_last_outcome_and_before_the_turn_is_still_handled() -> None:
    run = Driver(hearing)
    run.turn()
    run.signal("go", 1)
    run.succeed("1")
    run.pass_time()
    run.signal("go", 2)
    run.signal("other", 9)
    run.signal("go", 3)
    decision = run.turn()
    assert run.value == [1, 2, 3]
    assert decision.state == "COMPLETED"
    assert len(decision.delivered_messages) == 3
    assert list(decision.taken_entries.values()) == [max(decision.taken_messages.values()) + 1]
    assert run.decide(recorded_only=True).value == [1, 2, 3]


def test_a_body_that_fails_has_handled_every_signal_too() -> None:
    run = Driver(hearing, True, fails_on=(Declined,))
    run.turn()
    run.succeed("1")
    run.pass_time()
    run.signal("go", 1)
    decision = run.turn()
    assert (decision.state, len(decision.delivered_messages)) == ("FAILED", 1)
    assert decision.failure is not None
    assert decision.failure.message == "[1]"


def test_a_run_that_is_cancelled_at_its_end_gives_nothing_more_to_its_handlers() -> None:
    run = Driver(hearing)
    run.turn()
    run.claim("1")
    run.succeed("1")
    run.pass_time()
    run.signal("go", 1)
    run.cancel("enough")
    decision = run.turn()
    assert decision.state == "CANCELLED"
    assert decision.delivered_messages == (2,)  # the cancel
    assert run.decide(recorded_only=True).state == "CANCELLED"


# -- warn_after --------------------------------------------------------------------------------------------------------


def test_warn_at_is_that_of_the_first_open_wait_and_stays_on_replay() -> None:
    def body() -> Workflow[Any]:
        from durable_celery import gather

        yield from gather(Signal("x").wait(warn_after=60), Signal("y").wait(warn_after=30), a())
        yield from Signal("z").wait()

    run = Driver(body)
    assert run.turn().warn_at == BEGIN + timedelta(seconds=30)
    run.pass_time(10)
    run.succeed("1.2")
    assert run.turn().warn_at == BEGIN + timedelta(seconds=30)
    run.signal("y")
    assert run.turn().warn_at == BEGIN + timedelta(seconds=60)
    run.signal("x")
    assert run.turn().warn_at is None


def test_kinds_of_messages_have_their_names() -> None:
    assert (journal.UPDATE, journal.REJECTED) == ("update", "rejected")
