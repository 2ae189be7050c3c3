"""Updates: validation, answers, and that a rejected one leaves no trace."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from durable_celery import Workflow, query, random, side_effect, update, uuid4
from durable_celery.core.failure import Failure
from durable_celery.core.handlers import Answer
from durable_celery.errors import UsageError
from tests.core.driver import Driver, a
from tests.core.handler_bodies import (
    ask,
    counting,
)


def value_of(answer: Answer) -> Any:
    from durable_celery import codec

    assert answer.failure is None
    return codec.decode(answer.value or "")


def failure_of(answer: Answer) -> Failure:
    assert answer.failure is not None
    return Failure.from_text(answer.failure)


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
    ("name", "args", "kind", "text"),
    [
        ("nope", (), "durable_celery.errors.BadValue", "the body takes no update 'nope' now; known are 'add'"),
        ("add", (), "TypeError", "missing a required argument: 'number'"),
        ("add", (1, 2), "TypeError", "too many positional arguments"),
    ],
)
def test_what_the_body_cannot_take_is_rejected(name: str, args: tuple[Any, ...], kind: str, text: str) -> None:
    run = Driver(counting)
    run.turn()
    rejected = run.update(name, *args)
    run.turn()
    failure = failure_of(run.rejected[rejected])
    assert text in failure.message
    assert failure.type == kind
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
