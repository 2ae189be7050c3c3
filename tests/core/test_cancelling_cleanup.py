"""A cancel: cleanup that runs, what swallows it, and work side by side."""

from __future__ import annotations

from typing import Any

import pytest

from durable_celery import CancelRequested, Saga, Signal, StepFailed, Workflow, gather, shield, sleep
from durable_celery.core.decision import Decision
from tests.core.cancelling_bodies import (
    after_first,
)
from tests.core.driver import Driver, a, b, c, shown

# -- cleanup ---------------------------------------------------------------------------------------------------------


class Foreign:
    """Something that is made a command when it is yielded."""


def cleanups() -> dict[str, Any]:
    def in_finally() -> Workflow[None]:
        yield from a()
        try:
            yield from sleep(100)
        finally:
            yield from b()
            yield b()

    def in_handler() -> Workflow[None]:
        yield from a()
        try:
            yield from sleep(100)
        except CancelRequested:
            yield from b()
            yield b()
            raise

    def by_helper() -> Workflow[None]:
        def clean() -> Workflow[None]:
            yield from b()
            yield b()

        yield from a()
        try:
            yield from sleep(100)
        finally:
            yield from clean()

    def built_before() -> Workflow[None]:
        first, second = b(), b()
        yield from a()
        try:
            yield from sleep(100)
        finally:
            yield first
            yield from second

    def by_saga() -> Workflow[None]:
        saga = Saga()
        saga.add(b())
        saga.add(b())
        yield from a()
        try:
            yield from sleep(100)
        finally:
            yield from saga.compensate()

    def adapted() -> Workflow[None]:
        yield from a()
        try:
            yield from sleep(100)
        finally:
            yield Foreign()
            yield Foreign()

    def in_a_handler_within_finally() -> Workflow[None]:
        yield from a()
        try:
            yield from sleep(100)
        finally:
            try:
                yield from b()
                raise LookupError
            except LookupError:
                yield b()

    return {name: body for name, body in locals().items() if callable(body)}


@pytest.mark.parametrize("name", cleanups())
def test_a_yielded_cleanup_runs_however_it_was_built(name: str) -> None:
    run = after_first(cleanups()[name], adapt=lambda yielded: b() if isinstance(yielded, Foreign) else None)

    assert shown(run.turn())[0] == "open step core.b at 3 SCHEDULED"
    run.succeed("3")
    assert shown(run.turn()) == ["open step core.b at 4 SCHEDULED", "take 3", "WAITING step core.b at 4"]
    run.succeed("4")

    assert shown(run.turn()) == ["take 4", "CANCELLED Cancelled: changed my mind"]
    assert run.decide(recorded_only=True).state == "CANCELLED"


def test_cleanup_goes_on_though_the_run_is_being_cancelled() -> None:
    run = after_first(cleanups()["in_finally"])

    assert run.turn().openings[0].shielded


def swallowers() -> dict[str, Any]:
    def builds_anew() -> Workflow[None]:
        yield from a()
        while True:
            try:
                yield from b()
            except BaseException as error:
                if isinstance(error, GeneratorExit):
                    raise

    def yields_bare() -> Workflow[None]:
        yield from a()
        while True:
            try:
                yield b()
            except CancelRequested:
                pass

    def built_before() -> Workflow[None]:
        commands = [b() for _ in range(9)]
        yield from a()
        for command in commands:
            try:
                yield command
            except CancelRequested:
                pass

    def adapted() -> Workflow[None]:
        yield from a()
        while True:
            try:
                yield Foreign()
            except CancelRequested:
                pass

    return {name: body for name, body in locals().items() if callable(body)}


@pytest.mark.parametrize("name", swallowers())
def test_a_body_that_swallows_the_cancel_gets_it_three_times_more_and_is_closed(name: str) -> None:
    run = after_first(swallowers()[name], adapt=lambda yielded: b() if isinstance(yielded, Foreign) else None)

    assert shown(run.turn()) == [
        "give up 2", "take message 1", "mark cancel:1 []", "CANCELLED Cancelled: changed my mind",
    ]  # fmt: skip
    assert [entry.name for entry in run.entries.values()] == ["core.a", "core.b"]


def leavers() -> dict[str, Any]:
    def returns() -> Workflow[str]:
        try:
            yield from a()
            yield from b()
        except CancelRequested:
            return "handled"
        finally:
            yield from c()
        return "done"

    def goes_on_after_it() -> Workflow[None]:
        try:
            yield from a()
            yield from b()
        except CancelRequested:
            pass
        finally:
            yield c()

    def in_a_helper() -> Workflow[None]:
        def tidies() -> Workflow[None]:
            yield from c()

        yield from a()
        try:
            yield from b()
        except CancelRequested:
            return
        finally:
            if True:
                yield from tidies()

    def built_before() -> Workflow[None]:
        yield from a()
        later = c()
        try:
            yield from b()
        except CancelRequested:
            return
        finally:
            yield from later

    return {name: body for name, body in locals().items() if callable(body)}


@pytest.mark.parametrize("name", leavers())
def test_a_finally_cleans_up_also_where_the_cancel_is_handled_no_more(name: str) -> None:
    run = after_first(leavers()[name])

    assert shown(run.turn())[-1] == "WAITING step core.c at 3"
    run.succeed("3")
    assert shown(run.turn())[-1] == "CANCELLED Cancelled: changed my mind"


def test_a_loop_that_swallows_the_cancel_beside_a_finally_is_closed_all_the_same() -> None:
    def body() -> Workflow[None]:
        yield from a()
        while True:
            try:
                yield from b()
            except CancelRequested:
                pass
            finally:
                yield from c()

    run = after_first(body)
    for position in "3456":
        assert shown(run.turn())[-1] == f"WAITING step core.c at {position}"
        run.succeed(position)
    assert shown(run.turn())[-1] == "CANCELLED Cancelled: changed my mind"


def test_a_second_request_changes_nothing() -> None:
    run = after_first(cleanups()["in_finally"])
    run.turn()
    run.cancel("again")

    assert shown(run.turn()) == ["take message 2", "WAITING step core.b at 3"]


# -- side by side ----------------------------------------------------------------------------------------------------


def test_members_nobody_claimed_are_given_up_and_claimed_ones_waited_for() -> None:
    def body() -> Workflow[Any]:
        yield from a()
        return (yield from gather(b(), c(), sleep(50), Signal("go").wait()))

    run = after_first(body)
    run.claim("2.1")

    assert shown(run.turn())[:3] == ["give up 2.0", "give up 2.2", "give up 2.3"]
    run.succeed("2.1")
    assert shown(run.turn()) == ["give up 2", "take 4", "CANCELLED Cancelled: changed my mind"]


def test_what_was_waited_for_does_not_depend_on_what_became_of_it() -> None:
    """Claimed when the request came in, ended since: replay must wait for it at the same place."""

    def body() -> Workflow[Any]:
        yield from a()
        try:
            yield from gather(b(), b())
        finally:
            yield from c()

    run = after_first(body)
    run.claim("2.0")
    run.turn()
    assert run.states()["2.1"] == "CANCELLED"
    run.succeed("2.0")
    run.turn()
    assert run.open_steps() == ["3"]
    run.succeed("3")

    assert run.turn().state == "CANCELLED"
    assert run.decide(recorded_only=True) == Decision(state="CANCELLED", failure=run.decisions[-1].failure, value=None)


def test_a_shielded_command_runs_to_its_end() -> None:
    def body() -> Workflow[Any]:
        yield from a()
        value = yield from shield(gather(b(), sleep(5)))
        yield from c(value)

    run = after_first(body)

    assert shown(run.turn())[-1].startswith("WAITING gather at 2")
    run.succeed("2.0", "B")
    run.pass_time(10)
    assert shown(run.turn())[-1] == "CANCELLED Cancelled: changed my mind"
    assert run.states()["2"] == "SUCCEEDED"


def test_a_body_may_cancel_itself() -> None:
    def body() -> Workflow[None]:
        try:
            yield from a()
        except StepFailed:
            raise CancelRequested("no use") from None

    run = Driver(body)
    run.turn()
    run.fail("1")

    assert shown(run.turn())[-1] == "CANCELLED Cancelled: no use"
