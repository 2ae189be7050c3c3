"""Handlers of signals, updates and queries: in order, before the body resumes, the same on replay."""

from __future__ import annotations

from collections.abc import Callable, Generator
from datetime import timedelta
from typing import Any

import pytest

from durable_celery import Signal, Workflow, WorkflowFailed, now, query, random, side_effect, sleep, update, uuid4
from durable_celery.core import asking, journal, transitions
from durable_celery.core.failure import Failure
from durable_celery.core.handlers import Answer
from durable_celery.errors import UsageError
from tests.core.driver import BEGIN, Driver, a

go = Signal("go")


def ask(run: Driver, name: str, *values: Any, turns: int | None = None) -> Any:
    from durable_celery import codec

    return asking.ask(
        run.body, run.args, {}, run.journal(), name=name, values=list(values),
        turn=run.turns if turns is None else turns, ended=not run.open, now=run.now, started_at=run.started_at,
        decode=codec.decode, encode=lambda value, root: codec.encode(value, root=root), fails_on=run.fails_on,
    )  # fmt: skip


def value_of(answer: Answer) -> Any:
    from durable_celery import codec

    assert answer.failure is None
    return codec.decode(answer.value or "")


def failure_of(answer: Answer) -> Failure:
    assert answer.failure is not None
    return Failure.from_text(answer.failure)


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


# -- updates -----------------------------------------------------------------------------------------------------------


def counting() -> Workflow[int]:
    total = [0]

    def add(number: int) -> int:
        total[0] += number
        return total[0]

    def positive(number: int) -> None:
        if number < 0:
            raise ValueError(f"{number} is negative")

    update("add", add, positive)
    query("total", lambda: total[0])
    yield from a()
    return total[0]


def test_an_update_answers_and_changes_the_body_also_on_replay() -> None:
    run = Driver(counting)
    run.turn()
    first = run.update("add", 2)
    second = run.update("add", 3)
    decision = run.turn()
    assert decision.taken_messages == {first: 0, second: 1}
    assert [value_of(run.answers[pk]) for pk in (first, second)] == [2, 5]
    assert ask(run, "total") == 5
    run.succeed("1")
    decision = run.turn()
    assert (run.value, decision.answers) == (5, {})


def test_a_rejected_update_leaves_no_trace() -> None:
    run = Driver(counting)
    run.turn()
    before = run.journal()
    rejected = run.update("add", -1)
    decision = run.turn()
    assert (decision.taken_messages, decision.answers, list(decision.rejected)) == ({}, {}, [rejected])
    failure = failure_of(run.rejected[rejected])
    assert (failure.type, failure.message) == ("ValueError", "-1 is negative")
    assert run.journal() == before
    accepted = run.update("add", 1)
    run.turn()
    assert value_of(run.answers[accepted]) == 1


def test_a_validator_sees_what_came_before_it_in_the_same_turn() -> None:
    def body() -> Workflow[Any]:
        names: list[str] = []

        def free(name: str) -> None:
            if name in names:
                raise ValueError(f"{name} is taken")

        update("take", names.append, free)
        yield from a()
        return names

    run = Driver(body)
    run.turn()
    run.update("take", "ana")
    second = run.update("take", "ana")
    run.update("take", "bob")
    run.turn()
    assert failure_of(run.rejected[second]).message == "ana is taken"
    run.succeed("1")
    run.turn()
    assert run.value == ["ana", "bob"]


@pytest.mark.parametrize(
    ("name", "args", "text"),
    [
        ("nope", (), "the body takes no update 'nope' now; known are 'add'"),
        ("add", (), "missing a required argument: 'number'"),
        ("add", (1, 2), "too many positional arguments"),
    ],
)
def test_what_the_body_cannot_take_is_rejected(name: str, args: tuple[Any, ...], text: str) -> None:
    run = Driver(counting)
    run.turn()
    rejected = run.update(name, *args)
    run.turn()
    assert text in failure_of(run.rejected[rejected]).message
    assert run.state == "WAITING"


def test_a_validator_that_returns_false_rejects_and_none_accepts() -> None:
    def body() -> Workflow[Any]:
        update("set", lambda value: value, lambda value: value > 0)
        yield from a()

    run = Driver(body)
    run.turn()
    bad, good = run.update("set", -1), run.update("set", 1)
    run.turn()
    assert failure_of(run.rejected[bad]).message == "the validator returned False"
    assert value_of(run.answers[good]) == 1


@pytest.mark.parametrize(
    "function", [lambda *x: a(), lambda *x: uuid4(), lambda *x: side_effect(lambda: 1), lambda *x: random().random()]
)
@pytest.mark.parametrize("kind", ["validate", "query"])
def test_validators_and_queries_only_look(kind: str, function: Callable[..., Any]) -> None:
    def body() -> Workflow[Any]:
        update("set", lambda: None, function)
        query("get", function)
        yield from a()

    run = Driver(body)
    run.turn()
    if kind == "query":
        with pytest.raises(UsageError, match="in query 'get', which may only look"):
            ask(run, "get")
        return
    rejected = run.update("set")
    run.turn()
    assert "in the validator of update 'set', which may only look" in failure_of(run.rejected[rejected]).message
    run.succeed("1")
    run.turn()
    assert run.state == "COMPLETED"


def test_an_update_that_raises_is_accepted_and_the_run_goes_on_the_same_on_replay() -> None:
    def body() -> Workflow[Any]:
        seen: list[Any] = []

        def odd(number: int) -> None:
            seen.append(number)
            raise LookupError(f"no {number}")

        update("odd", odd)
        yield from a()
        return seen

    run = Driver(body, fails_on=(LookupError,))
    run.turn()
    pk = run.update("odd", 3)
    decision = run.turn()
    assert (run.state, decision.taken_messages) == ("WAITING", {pk: 0})
    assert (failure_of(run.answers[pk]).type, failure_of(run.answers[pk]).message) == ("LookupError", "no 3")
    run.succeed("1")
    run.turn()
    assert run.value == [3]


def test_an_answer_that_cannot_be_kept_is_the_senders_to_know() -> None:
    def body() -> Workflow[Any]:
        update("odd", lambda: print)
        yield from a()

    run = Driver(body)
    run.turn()
    pk = run.update("odd")
    run.turn()
    assert run.state == "WAITING"
    assert failure_of(run.answers[pk]).type == "durable_celery.errors.NotSerializable"


def test_an_update_whose_code_is_gone_is_a_mismatch() -> None:
    run = Driver(counting)
    run.turn()
    pk = run.update("add", 1)
    run.turn()

    def without() -> Workflow[None]:
        yield from a()

    run.body = without
    run.succeed("1")
    decision = run.turn()
    assert decision.state == "BLOCKED"
    assert f"position message {pk}: recorded is update 'add'" in decision.waiting


def test_an_update_accepted_by_a_turn_that_was_taken_back_is_not_validated_again() -> None:
    run = Driver(counting)
    run.turn()
    pk = run.update("add", 1)
    run.turn()
    from dataclasses import replace

    run.turns -= 1
    run.messages = [replace(run.messages[0], taken_turn=None, taken_at=None)]
    decision = run.decide()
    assert (decision.taken_messages, decision.answers, decision.rejected) == ({pk: 0}, {}, {})


def test_an_update_that_comes_after_the_end_is_not_taken() -> None:
    run = Driver(counting)
    run.turn()
    run.succeed("1")
    pk = run.update("add", 1)
    decision = run.turn()
    assert (run.state, pk in decision.taken_messages, run.answers) == ("COMPLETED", False, {})


# -- queries -----------------------------------------------------------------------------------------------------------


def test_a_query_answers_the_state_of_the_last_turn_and_sees_nothing_newer() -> None:
    run = Driver(counting)
    assert ask(run, "total") == 0
    run.turn()
    run.update("add", 5)
    assert ask(run, "total") == 0
    run.turn()
    assert (ask(run, "total"), ask(run, "total", turns=1)) == (5, 0)
    run.succeed("1")
    run.turn()
    assert (run.state, ask(run, "total")) == ("COMPLETED", 5)


def test_an_unknown_query_names_those_there_are_and_an_error_of_one_is_raised_as_it_is() -> None:
    def body() -> Workflow[None]:
        query("b", lambda: 1 / 0)
        query("a", lambda x, y: x + y)
        yield from a()

    run = Driver(body)
    run.turn()
    with pytest.raises(UsageError, match="no query 'nope'; known are 'a', 'b'"):
        ask(run, "nope")
    with pytest.raises(ZeroDivisionError):
        ask(run, "b")
    assert ask(run, "a", 1, 2) == 3


def test_a_query_on_code_that_does_not_fit_says_so() -> None:
    run = Driver(counting)
    run.turn()

    def other() -> Workflow[None]:
        query("total", lambda: 0)
        yield from sleep(1)

    run.body = other
    with pytest.raises(Exception, match="the code does not fit the journal") as raised:
        ask(run, "total")
    assert type(raised.value).__name__ == "NonDeterminism"


def test_a_query_of_a_run_cancelled_without_its_body_answers_what_was_before() -> None:
    run = Driver(counting)
    run.turn()
    run.update("add", 4)
    run.turn()
    run.cancel("enough")
    message = run.messages[-1]
    from dataclasses import replace

    run.turns += 1
    run.messages[-1] = replace(message, taken_turn=run.turns, taken_order=0, taken_at=run.now)
    run.state = transitions.CANCELLED
    assert ask(run, "total") == 4


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
