"""A cancel: what is given up, what is waited for, where it is thrown."""

from __future__ import annotations

from typing import Any

import pytest

from durable_celery import CancelRequested, Workflow, sleep
from durable_celery.core import journal
from tests.core.cancelling_bodies import (
    after_first,
)
from tests.core.driver import Driver, a, b, c, shown


def test_what_nobody_has_claimed_is_given_up_and_the_cancel_is_thrown_at_once() -> None:
    caught: list[str] = []

    def body() -> Workflow[None]:
        yield from a()
        try:
            yield from b()
        except CancelRequested as error:
            caught.append(error.reason)
            raise

    run = after_first(body)

    assert shown(run.turn()) == [
        "give up 2",
        "take message 1",
        "mark cancel:1 []",
        "CANCELLED Cancelled: changed my mind",
    ]
    assert set(caught) == {"changed my mind"}
    assert run.states()["2"] == "CANCELLED"


@pytest.mark.parametrize("ends_well", [True, False])
def test_a_claimed_step_is_waited_for_and_its_value_comes_first(ends_well: bool) -> None:
    seen: list[Any] = []

    def body() -> Workflow[None]:
        yield from a()
        seen.append((yield from b()))
        yield from c()

    run = Driver(body)
    run.turn()
    run.succeed("1")
    run.turn()
    run.claim("2")
    run.cancel("why")
    assert shown(run.turn()) == ["take message 1", 'mark cancel:1 ["2"]', "WAITING step core.b at 2"]
    if ends_well:
        run.succeed("2", "value")
    else:
        run.fail("2")

    assert shown(run.turn()) == ["take 2", "CANCELLED Cancelled: why"]
    assert seen == (["value", "value"] if ends_well else [])


def test_an_exception_handler_does_not_swallow_the_cancel() -> None:
    def body() -> Workflow[None]:
        yield from a()
        while True:
            try:
                yield from b()
            except Exception:
                pass

    assert after_first(body).turn().state == "CANCELLED"


def test_the_way_a_body_leaves_does_not_change_how_the_run_ends() -> None:
    def body(how: str) -> Workflow[str]:
        yield from a()
        try:
            yield from sleep(100)
        except CancelRequested:
            if how == "failing":
                yield from b()
        return "as if nothing had happened"

    run = Driver(body, "returning")
    run.turn()
    run.succeed("1")
    run.turn()
    run.cancel("why")
    assert shown(run.turn())[-1] == "CANCELLED Cancelled: why"

    run = Driver(body, "failing")
    run.turn()
    run.succeed("1")
    run.turn()
    run.cancel("why")
    run.turn()
    run.fail("3")
    assert shown(run.turn())[-1].startswith(
        "CANCELLED Cancelled: why; its cleanup failed: StepFailed: step core.b at 3"
    )


def test_a_deadline_ends_a_run_failed() -> None:
    def body() -> Workflow[None]:
        yield from a()
        yield from sleep(100)

    run = Driver(body)
    run.turn()
    run.succeed("1")
    run.turn()
    run.cancel("longer than 5 s", kind=journal.DEADLINE)
    decision = run.turn()

    assert shown(decision)[-1] == "FAILED WorkflowTimedOut: longer than 5 s"
    assert decision.failure is not None
    assert decision.failure.timed_out
