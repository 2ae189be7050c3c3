"""Where continue_as_new is refused, and what it refuses to lose."""

from __future__ import annotations

from typing import Any

import pytest

from durable_celery import Workflow, continue_as_new, gather, race, shield, sleep, spawn
from durable_celery.errors import NotInWorkflow, StepFailed
from tests.core.bodies import blocked, line_of
from tests.core.continuing_bodies import counting, goes_on_with, inc
from tests.core.driver import Driver, a, b, c, undo


def test_a_body_that_goes_on_where_more_of_this_run_is_recorded_is_blocked() -> None:
    def longer() -> Workflow[int]:
        yield from a()
        yield from b()
        return 1

    def shorter() -> Workflow[int]:
        yield from a()
        return (yield from continue_as_new(1, workflow=counting))

    run = Driver(longer)
    run.turn()
    run.succeed("1")
    run.turn()
    run.succeed("2")
    run.body = shorter
    assert "more of this run" in blocked(run)


def test_a_body_that_swallows_it_and_asks_again_is_blocked() -> None:
    def body() -> Workflow[int]:
        while True:
            try:
                yield from continue_as_new(1, workflow=counting)
            except BaseException:  # noqa: BLE001
                pass

    assert "let BaseException through" in blocked(Driver(body))


@pytest.mark.parametrize("args", [(), (1, 2)])
def test_arguments_the_workflow_does_not_take_raise_at_the_call(args: tuple[Any, ...]) -> None:
    def body() -> Workflow[str]:
        try:
            return (yield from continue_as_new(*args, workflow=counting))
        except TypeError as error:
            return str(error)

    decision = Driver(body).turn()
    assert decision.state == "COMPLETED"
    assert "core.counting(total" in decision.value


def test_only_a_workflow_is_something_to_go_on_as() -> None:
    def body() -> Workflow[int]:
        return (yield from continue_as_new(1, workflow=counting.using(key="k")))  # type: ignore[arg-type]

    assert "expected a function decorated with @workflow" in blocked(Driver(body))


def test_outside_it_names_the_alternative() -> None:
    with pytest.raises(NotInWorkflow, match=r"start a new instance with .start"):
        _ = continue_as_new(1)


@pytest.mark.parametrize("around", [gather, shield, lambda member: race(sleep(1), member)])
def test_it_is_no_part_of_another_command(around: Any) -> None:
    def body() -> Workflow[Any]:
        return (yield from around(continue_as_new(1, workflow=counting)))

    assert "cannot be a part of another command" in blocked(Driver(body))


def test_a_command_built_and_never_yielded_is_found_at_the_yield() -> None:
    def body() -> Workflow[int]:
        forgotten = a()
        return (yield from continue_as_new(1 if forgotten else 2, workflow=counting))

    assert "never yielded" in blocked(Driver(body))


@pytest.mark.parametrize("member", [a, lambda: sleep(60), inc.wait, lambda: gather(a(), b())])
def test_spawned_work_that_still_runs_is_not_left_behind(member: Any) -> None:
    def body() -> Workflow[int]:
        yield from spawn(member())
        return (yield from continue_as_new(1, workflow=counting))

    told = blocked(Driver(body))
    assert "still run: 1.0" in told
    assert "join or cancel each handle first" in told
    assert line_of(body, "continue_as_new") in told


@pytest.mark.parametrize("how", ["joined", "ended", "cancelled"])
def test_spawned_work_that_has_ended_is_no_hindrance(how: str) -> None:
    def body() -> Workflow[int]:
        handle = yield from spawn(a())
        if how == "joined":
            yield from handle
        elif how == "cancelled":
            yield from handle.cancel()
        else:
            yield from b()
        return (yield from continue_as_new(1, workflow=counting))

    run = Driver(body)
    if how == "cancelled":
        goes_on_with(run, 1)
        return
    run.turn()
    run.succeed("1.0")
    if how == "ended":
        run.turn()
        run.succeed("2")
    goes_on_with(run, 1)


@pytest.mark.parametrize("state", ["open", "succeeded", "unknown end"])
def test_a_compensation_that_could_fall_due_is_not_left_behind(state: str) -> None:
    def body() -> Workflow[int]:
        try:
            yield from a().compensate_with(undo)
        except StepFailed:
            pass
        return (yield from continue_as_new(1, workflow=counting))

    def racing() -> Workflow[int]:
        yield from race(a().compensate_with(undo), b())
        return (yield from continue_as_new(1, workflow=counting))

    run = Driver(racing if state == "open" else body)
    run.turn()
    if state == "open":
        run.claim("1.0")
        run.succeed("1.1")
    elif state == "succeeded":
        run.succeed("1")
    else:
        run.fail("1", time_out=True)
    told = blocked(run)
    assert "compensations that could still fall due: those of 1" in told
    assert line_of(run.body, "continue_as_new") in told


def test_a_compensation_that_never_can_fall_due_is_no_hindrance() -> None:
    def body() -> Workflow[int]:
        try:
            yield from a().compensate_with(undo)
        except StepFailed:
            pass
        yield from race(b(), c().compensate_with(undo))
        return (yield from continue_as_new(1, workflow=counting))

    run = Driver(body)
    run.turn()
    run.fail("1")  # by its own final error
    run.turn()
    run.succeed("2.0")  # the other was never claimed
    goes_on_with(run, 1)
