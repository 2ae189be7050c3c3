"""Bodies with a bug, and bodies that do not fit their journal: BLOCKED, with nothing else decided."""

from __future__ import annotations

import inspect
import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from durable_celery import Signal, StepFailed, UsageError, Workflow, gather, sleep
from durable_celery.core.decision import Decision
from tests.core.driver import Driver, a, b, c, shown

FILE = "test_replay_blocked.py"


def blocked(run: Driver) -> str:
    """What a BLOCKED decision says; it must carry nothing else."""
    decision = run.turn()
    assert decision == Decision(state="BLOCKED", failure=decision.failure, waiting=decision.waiting)
    assert decision.failure is not None
    assert decision.waiting.startswith(decision.failure.brief[:200])
    return decision.waiting


def line_of(body: Callable[..., Any], text: str) -> str:
    """``body, line N of file`` for the line of the body that holds ``text``."""
    lines, first = inspect.getsourcelines(body)
    (offset,) = (i for i, line in enumerate(lines) if text in line)
    return f"{body.__name__}, line {first + offset} of {FILE}"


# -- bugs ----------------------------------------------------------------------------------------------------------


def test_a_bug_blocks_and_names_its_line() -> None:
    def body() -> Workflow[None]:
        value = yield from a()
        value["no such key"] += 1
        yield from b()

    run = Driver(body)
    run.turn()
    run.succeed("1", {})

    assert blocked(run) == f"KeyError: 'no such key' ({line_of(body, 'no such key')})"


def test_a_bug_in_a_helper_names_the_helpers_line() -> None:
    def helper() -> Workflow[None]:
        yield from a()
        int("x")

    def body() -> Workflow[None]:
        yield from helper()

    run = Driver(body)
    run.turn()
    run.succeed("1")

    assert line_of(helper, 'int("x")') in blocked(run)


def test_a_bodys_own_usage_error_is_a_bug() -> None:
    def body() -> Workflow[None]:
        yield from a()
        raise UsageError("mine")

    run = Driver(body)
    run.turn()
    run.succeed("1")

    assert blocked(run) == f"UsageError: mine ({line_of(body, 'mine')})"


def test_a_bug_while_replaying_blocks_as_itself() -> None:
    broken = False

    def body() -> Workflow[None]:
        yield from a()
        if broken:
            raise RuntimeError("deployed too early")
        yield from b()

    run = Driver(body)
    run.turn()
    run.succeed("1")
    run.turn()
    run.succeed("2")
    broken = True

    assert blocked(run).startswith("RuntimeError: deployed too early")


def test_a_wrong_argument_is_a_bug_at_its_line() -> None:
    from durable_celery import step

    @step(name="core.strict")
    def strict(number: int) -> None: ...

    def body() -> Workflow[None]:
        yield from strict(1, 2)  # type: ignore[call-arg]

    text = blocked(Driver(body))

    assert "core.strict(number: 'int') -> 'None': too many positional arguments" in text
    assert line_of(body, "strict(1, 2)") in text


def test_a_bad_value_blocks_at_the_line_that_gives_it() -> None:
    def body() -> Workflow[None]:
        yield from a()
        yield from sleep(float("nan"))

    run = Driver(body)
    run.turn()
    run.succeed("1")

    assert line_of(body, "nan") in blocked(run)


def test_arguments_the_body_does_not_take_block() -> None:
    def body(order: int) -> Workflow[None]:
        yield from a(order)

    assert "missing 1 required positional argument: 'order'" in blocked(Driver(body))


def test_a_body_that_became_async_blocks() -> None:
    async def body() -> None: ...

    assert "is an async def; a workflow body is a plain generator" in blocked(Driver(body))


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


# -- O-26, O-27: a body that does not fit its journal ----------------------------------------------------------------


class Flip:
    """A body that looks at something replay does not know of."""

    def __init__(self, *bodies: Callable[[], Workflow[Any]]) -> None:
        self.bodies = list(bodies)
        self.version = 0

    def __call__(self) -> Workflow[Any]:
        return (yield from self.bodies[self.version]())


def first() -> Workflow[None]:
    yield from a()
    yield from b()
    yield from c()


def reordered() -> Workflow[None]:
    yield from a()
    yield from c()
    yield from b()


def other_kind() -> Workflow[None]:
    yield from a()
    yield from sleep(3)


def shorter() -> Workflow[None]:
    yield from a()


def failing() -> Workflow[None]:
    yield from a()
    yield from gather(b(), limit=0)


def flip(before: Any, after: Any) -> Driver:
    """A run at its second step whose code is exchanged."""
    flipping = Flip(before, after)

    def body() -> Workflow[Any]:
        return (yield from flipping())

    run = Driver(body)
    run.turn()
    run.end(run.open_steps(), lambda entry: 1)
    run.turn()
    run.end(run.open_steps(), lambda entry: 2)
    flipping.version = 1
    return run


@pytest.mark.parametrize(
    ("after", "recorded", "requested"),
    [
        (reordered, "recorded is step core.b", "the body now asks for step core.c (reordered, line "),
        (other_kind, "recorded is step core.b", "the body now asks for timer (other_kind, line "),
        (shorter, "recorded is more of this run", "the body now asks for its end by a return (at its end)"),
    ],
)
def test_o26_a_mismatch_names_both_sides_and_the_line(after: Any, recorded: str, requested: str) -> None:
    text = blocked(flip(first, after))

    assert "the code does not fit the journal at position 2" in text
    assert recorded in text
    assert requested in text


def test_o26_the_kind_of_error_is_non_determinism_with_its_fields() -> None:
    failure = flip(first, reordered).turn().failure

    assert failure is not None
    assert failure.type == "durable_celery.errors.NonDeterminism"
    assert failure.attributes == {
        "position": "2",
        "recorded": "step core.b",
        "requested": "step core.c",
        "instance_id": "00000000-0000-7000-8000-000000000001",
    }


def test_a_body_that_goes_on_longer_than_recorded_does_not_fit() -> None:
    def waits() -> Workflow[None]:
        yield from a()
        yield from Signal("go").wait()

    def goes_on() -> Workflow[None]:
        yield from a()
        yield from Signal("go").wait(timeout=0)

    run = flip(waits, goes_on)  # another time-out is no mismatch: the recorded one stays in force
    run.signal("go")

    assert run.turn().state == "COMPLETED"


@pytest.mark.parametrize(
    ("before", "after", "says"),
    [
        (
            lambda: gather(a(), b()),
            lambda: gather(a(), b(), c()),
            "is gather of 2 members, the body now asks for gather",
        ),
        (lambda: gather(a(), b()), lambda: gather(b(), a()), "at position 2.0: recorded is step core.a"),
        (lambda: gather(a(), b()), lambda: a(), "at position 2: recorded is gather of 2 members"),
        (
            lambda: gather(a(), gather(b())),
            lambda: gather(a(), gather(b(), c())),
            "at position 2.1: recorded is gather",
        ),
        (
            lambda: Signal("x").wait(),
            lambda: Signal("y").wait(),
            "recorded is signal x, the body now asks for signal y",
        ),
    ],
    ids=["count", "order", "kind", "nested", "signal"],
)
def test_kind_name_and_number_of_members_must_match(before: Any, after: Any, says: str) -> None:
    def body_of(make: Any) -> Any:
        def body() -> Workflow[None]:
            yield from a()
            yield from make()
            yield from c()

        return body

    run = flip(body_of(before), body_of(after))
    run.signal("x")

    assert says in blocked(run)


def test_other_arguments_and_options_fit() -> None:
    def before() -> Workflow[None]:
        yield from a()
        yield from b(1).compensate_with(c(1))

    def after() -> Workflow[None]:
        yield from a()
        yield from b.using(queue="other", retry=None)(2, "more")

    assert flip(before, after).turn().state == "COMPLETED"


def test_an_outcome_the_body_does_not_wait_for_does_not_fit() -> None:
    run = flip(first, first)
    run.entries["2.5"] = replace(run.entries["2"], id=99, position="2.5")

    assert "at position 2.5: recorded is step core.b, the body now asks for nothing: it does not" in blocked(run)


def test_o26_a_choice_by_dice_is_found_as_soon_as_it_flips() -> None:
    outcomes = []
    for seed in range(20):
        dice = random.Random(seed)

        def body(dice: random.Random = dice) -> Workflow[None]:
            yield from a() if dice.random() < 0.5 else b()
            yield from c()

        run = Driver(body)
        run.apply(run.decide())
        recorded = run.entries["1"].name
        run.succeed("1")
        decision = run.decide()
        outcomes.append(decision.state)
        if decision.state == "BLOCKED":
            assert f"recorded is step {recorded}, the body now asks for step core." in decision.waiting
        else:
            assert shown(decision)[0] == "open step core.c at 2 SCHEDULED"

    assert set(outcomes) == {"BLOCKED", "WAITING"}


def test_o27_a_mismatch_changes_nothing_however_often_it_is_looked_at() -> None:
    run = flip(first, reordered)
    before = run.journal()

    for _ in range(20):
        blocked(run)

    assert run.journal() == before
    assert run.turns == 2


def test_o26_fixed_code_goes_on_from_where_it_was() -> None:
    flipping = Flip(first, reordered)

    def body() -> Workflow[Any]:
        return (yield from flipping())

    run = Driver(body)
    run.turn()
    run.succeed("1")
    run.turn()
    run.succeed("2")
    flipping.version = 1
    blocked(run)
    flipping.version = 0

    assert shown(run.turn()) == ["open step core.c at 3 SCHEDULED", "take 2", "WAITING step core.c at 3"]
