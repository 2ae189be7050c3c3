"""continue_as_new in the pure core: how a body leaves by it, what it refuses to lose, what beats it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from durable_celery import Signal, Workflow, continue_as_new, gather, race, shield, sleep, spawn, workflow
from durable_celery.core.decision import Continuation, Decision
from durable_celery.errors import NotInWorkflow, StepFailed
from tests.core.bodies import blocked, line_of
from tests.core.driver import Driver, a, b, c, undo

inc = Signal("inc", int)


@workflow(name="core.counting", version=1)
def counting(total: int) -> Workflow[int]:
    value = yield from inc.wait()  # durable: ok
    return (yield from continue_as_new(total + value, workflow=counting))


@workflow(name="core.counting", version=3)
def counting_newer(total: int) -> Workflow[int]:
    yield from a()
    return total


def going_on(*args: Any) -> Workflow[int]:
    return (yield from continue_as_new(*args, workflow=counting))


def goes_on_with(run: Driver, total: int) -> Decision:
    """The decision of a run that continues with this total, as the highest version."""
    decision = run.turn()
    assert (decision.state, decision.value, decision.failure) == ("CONTINUED", None, None)
    assert decision.continuation is not None
    named = Continuation(name="core.counting", version=3, args=f"[[{total}],{{}}]", unread=decision.continuation.unread)
    assert decision.continuation == named
    return decision


def test_a_run_that_yields_it_ends_and_says_as_what_it_goes_on() -> None:
    run = Driver(going_on, 7)
    decision = goes_on_with(run, 7)
    assert (decision.openings, decision.closings) == ((), ())
    assert not run.open


def test_it_takes_a_bare_yield_too() -> None:
    def body() -> Workflow[None]:
        yield continue_as_new(1, workflow=counting)

    goes_on_with(Driver(body), 1)


def test_what_was_read_before_is_delivered_and_what_was_not_is_left_over() -> None:
    def body() -> Workflow[int]:
        value = yield from inc.wait()
        return (yield from continue_as_new(value, workflow=counting))

    run = Driver(body)
    run.signal("other", "nobody waits for it")
    run.turn()
    run.signal("inc", 4)
    run.signal("inc", 5)
    decision = goes_on_with(run, 4)
    assert decision.delivered_messages == (2,)
    assert decision.taken_messages == {2: 0}, "what comes after the end is not taken in"
    assert decision.continuation is not None
    assert decision.continuation.unread == (1,)


def test_replay_of_a_continued_run_gives_the_same_and_appends_nothing() -> None:
    run = Driver(counting.body, 1)
    run.turn()
    run.signal("inc", 2)
    decision = goes_on_with(run, 3)
    again = run.decide(recorded_only=True)
    assert (again.state, again.continuation) == ("CONTINUED", decision.continuation)
    assert (again.openings, again.closings, again.taken_messages, again.delivered_messages) == ((), (), {}, ())


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


# -- leaving -----------------------------------------------------------------------------------------------------------


def test_what_stands_in_finally_runs_once_and_yielded_cleanup_comes_first() -> None:
    ran = []

    def body() -> Workflow[int]:
        try:
            return (yield from continue_as_new(1, workflow=counting))
        finally:
            yield from a()
            ran.append("left")

    run = Driver(body, twice=False)
    assert run.turn().state == "WAITING"
    run.succeed("1")
    ran.clear()
    goes_on_with(run, 1)
    assert ran == ["left"]


def test_an_except_clause_for_exceptions_does_not_see_it() -> None:
    def body() -> Workflow[int]:
        try:
            return (yield from continue_as_new(1, workflow=counting))
        except Exception:  # noqa: BLE001
            return 5

    goes_on_with(Driver(body), 1)


def test_a_body_that_swallows_its_leaving_and_returns_goes_on_all_the_same() -> None:
    def body() -> Workflow[int]:
        try:
            return (yield from continue_as_new(1, workflow=counting))
        except BaseException:  # noqa: BLE001
            return 5

    goes_on_with(Driver(body), 1)


def test_a_body_that_swallows_it_and_asks_again_is_blocked() -> None:
    def body() -> Workflow[int]:
        while True:
            try:
                yield from continue_as_new(1, workflow=counting)
            except BaseException:  # noqa: BLE001
                pass

    assert "let BaseException through" in blocked(Driver(body))


def test_a_failing_cleanup_is_the_end_of_the_run() -> None:
    def body() -> Workflow[int]:
        try:
            return (yield from continue_as_new(1, workflow=counting))
        finally:
            yield from a()

    run = Driver(body)
    run.turn()
    run.fail("1")
    decision = run.turn()
    assert (decision.state, decision.continuation) == ("FAILED", None)


# -- refused -----------------------------------------------------------------------------------------------------------


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


# -- a cancel wins -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("before", [True, False])
@pytest.mark.parametrize(("kind", "state"), [("cancel", "CANCELLED"), ("deadline", "FAILED")])
def test_a_request_to_end_in_the_same_turn_wins(kind: str, state: str, before: bool) -> None:
    run = Driver(counting.body, 1)
    run.turn()
    if before:
        run.cancel("enough", kind=kind)
        run.pass_time()
    run.signal("inc", 2)
    if not before:
        run.pass_time()
        run.cancel("enough", kind=kind)
    decision = run.turn()
    assert (decision.state, decision.continuation) == (state, None)


def test_a_cancel_while_its_cleanup_runs_wins() -> None:
    def body() -> Workflow[int]:
        try:
            return (yield from continue_as_new(1, workflow=counting))
        finally:
            yield from sleep(timedelta(days=1))

    run = Driver(body)
    run.turn()
    run.cancel("enough")
    assert run.turn().state == "CANCELLED"


def test_a_body_that_handles_a_cancel_by_going_on_is_cancelled() -> None:
    def body() -> Workflow[None]:
        try:
            yield from sleep(60)
        finally:
            yield from continue_as_new(1, workflow=counting)

    run = Driver(body)
    run.turn()
    run.cancel("enough")
    assert run.turn().state == "CANCELLED"


# -- messages ----------------------------------------------------------------------------------------------------------


def test_what_a_loser_of_a_race_had_taken_is_unread_again() -> None:
    def body() -> Workflow[Any]:
        yield from race(gather(inc.wait(), a()), b())
        yield from b()
        return (yield from continue_as_new(1, workflow=counting))

    run = Driver(body)
    run.turn()
    run.signal("inc", 1)
    assert run.turn().delivered_messages == (1,)
    run.succeed("1.1")
    decision = run.turn()
    assert (decision.delivered_messages, decision.returned_messages) == ((), (1,))
    run.succeed("2")
    decision = goes_on_with(run, 1)
    assert decision.continuation is not None
    assert (decision.returned_messages, decision.continuation.unread) == ((), (1,))


def test_a_message_taken_and_given_back_in_one_turn_was_never_delivered() -> None:
    def body() -> Workflow[Any]:
        winner = yield from race(gather(inc.wait(), a()), b())
        return winner.name

    run = Driver(body)
    run.turn()
    run.signal("inc", 1)
    run.pass_time()
    run.succeed("1.1")
    decision = run.turn()
    assert (decision.state, decision.taken_messages) == ("COMPLETED", {1: 0})
    assert (decision.delivered_messages, decision.returned_messages) == ((), ())
