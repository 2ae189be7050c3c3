"""Commands built and not yielded, and things yielded that are no commands: BLOCKED, with the line and the fix."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from durable_celery import Signal, StepFailed, Workflow, gather, sleep
from tests.core.bodies import blocked, line_of
from tests.core.driver import Driver, a, b, c, shown

# -- commands that are not yielded ---------------------------------------------------------------------------------


def unyielded(run: Driver, body: Callable[..., Any], text: str) -> None:
    expected = f"UsageError: step core.b was built at {line_of(body, text)} and never yielded, so it did not run; "
    assert blocked(run) == expected + "write 'yield from' before it"


def test_a_command_dropped_at_once_blocks_at_the_next_yield() -> None:
    def body() -> Workflow[None]:
        yield from a()
        b(7)  # type: ignore[unused-awaitable]
        yield from c()

    run = Driver(body)
    run.turn()
    run.succeed("1")

    unyielded(run, body, "b(7)")


def test_a_command_dropped_at_once_blocks_at_the_end() -> None:
    def body() -> Workflow[None]:
        yield from a()
        b(7)  # type: ignore[unused-awaitable]

    run = Driver(body)
    run.turn()
    run.succeed("1")

    unyielded(run, body, "b(7)")


def test_a_command_kept_in_a_variable_blocks_at_the_end() -> None:
    def body() -> Workflow[str]:
        kept = b(7)
        yield from a()
        return kept.describe()

    run = Driver(body)
    run.turn()
    run.succeed("1")

    unyielded(run, body, "b(7)")


def test_a_command_kept_beyond_the_body_blocks_at_the_end() -> None:
    kept = []

    def body() -> Workflow[None]:
        kept.append(b(7))
        yield from a()

    run = Driver(body)
    run.turn()
    run.succeed("1")

    unyielded(run, body, "b(7)")


def test_a_command_dropped_in_an_error_handler_blocks() -> None:
    def body() -> Workflow[None]:
        try:
            yield from a()
        except StepFailed:
            b(7)  # type: ignore[unused-awaitable]
            yield from c()

    run = Driver(body)
    run.turn()
    run.fail("1")

    unyielded(run, body, "b(7)")


def test_a_returned_command_blocks() -> None:
    def body() -> Workflow[Any]:
        yield from a()
        return b(7)

    run = Driver(body)
    run.turn()
    run.succeed("1")

    assert blocked(run) == (
        f"UsageError: workflow core.workflow returned step core.b, built at {line_of(body, 'b(7)')}, "
        "instead of running it; write return (yield from ...)"
    )


def test_a_command_returned_in_a_list_blocks() -> None:
    def body() -> Workflow[Any]:
        yield from a()
        return [b(7)]

    run = Driver(body)
    run.turn()
    run.succeed("1")

    unyielded(run, body, "b(7)")


def test_a_plain_function_that_builds_a_command_blocks() -> None:
    def body() -> None:
        b(7)  # type: ignore[unused-awaitable]

    unyielded(Driver(body), body, "b(7)")


def test_a_command_is_not_missed_after_an_error_was_thrown_in_between() -> None:
    def body() -> Workflow[str]:
        later = b(7)
        try:
            yield from a()
        except StepFailed:
            return "gave up"
        return str((yield from later))

    run = Driver(body)
    run.turn()
    run.fail("1")

    assert shown(run.turn()) == ["take 1", "COMPLETED 'gave up'"]


def test_commands_dropped_because_the_body_failed_are_not_complained_about() -> None:
    def body() -> Workflow[None]:
        later = b(7)
        yield from a()
        raise LookupError(later.describe())

    run = Driver(body)
    run.turn()
    run.succeed("1")

    assert blocked(run).startswith("LookupError: step core.b")


def test_other_commands_say_what_they_are() -> None:
    def forgets(what: str) -> Workflow[None]:
        if what == "sleep":
            sleep(3)  # type: ignore[unused-awaitable]
        elif what == "signal":
            Signal("go").wait()  # type: ignore[unused-awaitable]
        else:
            gather(a(), b())  # type: ignore[unused-awaitable]
        yield from c()

    assert blocked(Driver(forgets, "sleep")).startswith("UsageError: sleep was built at forgets, line ")
    assert blocked(Driver(forgets, "signal")).startswith("UsageError: signal 'go' was built at forgets, line ")
    assert blocked(Driver(forgets, "gather")).startswith("UsageError: gather of 2 was built at forgets, line ")


# -- O-23 and other things that are yielded ------------------------------------------------------------------------


def helper(*args: Any) -> Workflow[str]:
    value = yield from a(*args)
    return f"helped {value}"


def test_o23_a_yielded_generator_blocks_and_says_yield_from() -> None:
    def body() -> Workflow[None]:
        yield helper(1)

    assert blocked(Driver(body)) == (
        f"UsageError: a generator was yielded at {line_of(body, 'helper(1)')}; to run the helper generator helper(...) "
        "use yield from helper(...)"
    )


def test_o23_a_returned_generator_blocks_and_says_yield_from() -> None:
    def body() -> Workflow[Any]:
        yield from a()
        value = helper(1)
        return value

    run = Driver(body)
    run.turn()
    run.succeed("1")

    assert blocked(run) == (
        f"UsageError: workflow core.workflow returned the generator helper(...) instead of running it "
        f"({line_of(body, 'helper(1)')}); use yield from: return (yield from helper(...))"
    )


def test_o23_a_plain_function_that_returns_a_generator_blocks() -> None:
    def body() -> Any:
        value = helper(1)
        return value

    assert line_of(body, "helper(1)") in blocked(Driver(body))


def test_o23_the_generator_of_a_method_or_a_wrapper_without_a_name_blocks() -> None:
    def wrapper(*args: Any) -> Any:
        return helper(*args)

    assert "use yield from" in blocked(Driver(wrapper, 1))
    assert "use yield from" in blocked(Driver(lambda: (each for each in "ab")))


def test_o23_yield_from_a_helper_hands_its_value_on() -> None:
    def body() -> Workflow[str]:
        return (yield from helper(1))

    assert Driver(body).play(lambda entry: 5).value == "helped 5"


@pytest.mark.parametrize("kind", [list, tuple, set])
def test_a_yielded_collection_blocks_in_favour_of_gather(kind: type) -> None:
    def body() -> Workflow[None]:
        yield kind([a()])

    text = blocked(Driver(body))

    assert text.startswith(f"UsageError: {kind.__name__} ")
    assert f"was yielded at {line_of(body, 'yield kind')}" in text
    assert "write yield from gather(a, b)" in text


@pytest.mark.parametrize("kind", [list, tuple, iter])
def test_yield_from_a_collection_blocks_in_favour_of_gather(kind: Any) -> None:
    def body() -> Workflow[None]:
        yield from kind([a(), b()])

    over = "tuple" if kind is tuple else "list"
    assert blocked(Driver(body)) == (
        f"UsageError: 'yield from' over a {over} at {line_of(body, 'yield from kind')}: "
        "to run commands side by side write yield from gather(a, b)"
    )


@pytest.mark.parametrize("value", [None, 5, "text", object(), {"a": 1}, a, helper, ValueError("x")], ids=str)
def test_anything_else_that_is_yielded_blocks(value: Any) -> None:
    def body() -> Workflow[None]:
        yield value

    text = blocked(Driver(body))

    assert f"{type(value).__name__} " in text
    assert line_of(body, "yield value") in text


def test_a_bare_yield_blocks() -> None:
    def body() -> Workflow[None]:
        yield

    assert "NoneType None was yielded" in blocked(Driver(body))


def test_a_command_yielded_twice_blocks() -> None:
    def body() -> Workflow[None]:
        command = a()
        yield from command
        yield from command

    run = Driver(body)
    run.turn()
    run.succeed("1")

    assert blocked(run).startswith(
        f"UsageError: step core.a built at {line_of(body, 'command = a()')} is yielded twice; build a new one"
    )


def test_a_command_yielded_beside_its_gather_blocks() -> None:
    def body() -> Workflow[None]:
        command = a()
        yield from gather(command, b())
        yield from command

    run = Driver(body)
    run.turn()
    run.end(["1.0", "1.1"], lambda entry: None)

    assert "is yielded twice" in blocked(run)


def test_foreign_things_may_be_adapted() -> None:
    class Foreign: ...

    wide: Any = gather

    def body() -> Workflow[Any]:
        first = yield Foreign()
        second = yield from wide(Foreign(), b())
        return first, second

    run = Driver(body, adapt=lambda yielded: a(1) if isinstance(yielded, Foreign) else None).play()

    assert run.value == ("1", ("2.0", "2.1"))
