"""A body that refuses to be left, and where a body stands."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from durable_celery import (
    StepFailed,
    Workflow,
)
from durable_celery.core import generator
from tests.core.driver import Driver, a

# -- a body that refuses -------------------------------------------------------------------------------------------


def catches_everything_and_builds_anew() -> Workflow[None]:
    while True:
        try:
            yield from a()
        except BaseException:
            pass


def yields_the_same_kind_again_and_again() -> Workflow[None]:
    commands = [a() for _ in range(100)]
    for command in commands:
        try:
            yield from command
        except BaseException:
            pass


def yields_nothing_again_and_again() -> Workflow[None]:
    first: Any = a()
    while True:
        try:
            yield first
        except BaseException:
            first = None


@pytest.mark.parametrize(
    "body",
    [catches_everything_and_builds_anew, yields_the_same_kind_again_and_again, yields_nothing_again_and_again],
)
def test_a_body_that_refuses_to_be_left_blocks(body: Callable[[], Workflow[None]]) -> None:
    decision = Driver(body).turn()

    assert decision.state == "BLOCKED"
    assert decision.openings == ()
    assert decision.waiting.startswith(f"UsageError: the body cannot be left at {body.__name__}, line ")
    assert "it catches GeneratorExit and yields again; let BaseException through" in decision.waiting


def test_a_bug_is_named_before_the_refusal() -> None:
    def body() -> Workflow[None]:
        try:
            yield from a()
        except BaseException:
            yield 5
            yield from catches_everything_and_builds_anew()

    assert Driver(body).turn().state == "WAITING"
    run = Driver(body)
    run.turn()
    run.fail("1")
    assert "int 5 was yielded" in run.turn().waiting


def test_a_body_that_catches_exceptions_only_is_left() -> None:
    def body() -> Workflow[int]:
        for number in range(3):
            try:
                yield from a(number)
            except Exception:
                pass
        return 3

    run = Driver(body).play(lambda entry: ValueError("no luck"))

    assert (run.state, run.value) == ("COMPLETED", 3)


def test_a_loop_that_yields_less_often_than_it_is_closed_is_left() -> None:
    def body() -> Workflow[None]:
        commands = [a() for _ in range(generator.CLOSE_TRIES - 1)]
        for command in commands:
            try:
                yield from command
            except BaseException as error:
                if isinstance(error, StepFailed):
                    raise

    assert Driver(body).turn().state == "WAITING"


# -- where a body stands -------------------------------------------------------------------------------------------


def test_a_body_that_has_not_begun_or_has_ended_stands_somewhere_or_nowhere() -> None:
    def body() -> Workflow[int]:
        yield
        return 1

    made = body()

    assert generator.where(made).startswith("body, line ")
    next(made)
    assert generator.where(made) == f"body, line {made.gi_frame.f_lineno} of test_generator_refusing.py"  # type: ignore[attr-defined]
    assert list(made) == []
    assert generator.where(made) == ""


def test_an_error_came_out_of_the_line_of_the_body_not_of_the_library_it_called() -> None:
    def helper() -> Workflow[None]:
        yield json.loads("{")

    def body() -> Workflow[None]:
        yield from helper()

    def plain() -> None:
        json.loads("{")

    assert "(helper, line " in Driver(body).turn().waiting
    assert "(plain, line " in Driver(plain).turn().waiting
