"""Queries: a replay that answers from the state of the last turn and changes nothing."""

from __future__ import annotations

import pytest

from durable_celery import Workflow, query, sleep
from durable_celery.core import transitions
from durable_celery.errors import UsageError
from tests.core.driver import Driver, a
from tests.core.handler_bodies import (
    ask,
    counting,
)


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
