"""What a body gets of the workflows it yields, and what becomes of them when it does not need them any more."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from durable_celery import (
    ChildFailed,
    NotInWorkflow,
    StepFailed,
    UsageError,
    Workflow,
    gather,
    race,
    shield,
    sleep,
    workflow,
)
from durable_celery.core import identity, transitions
from durable_celery.core.children import TERMINATED, ChildTerms
from durable_celery.core.failure import Cause, Failure, failure_of
from durable_celery.errors import BadValue
from tests.core.driver import INSTANCE, Driver, a, b, shown


@workflow(name="core.child", execution_timeout=60, queue="slow", key=lambda number: f"child-{number}")
def child(number: int) -> Workflow[str]:
    return (yield from a(number))


@workflow(name="core.other")
def other() -> Workflow[int]:
    return (yield from a())


class Declined(Exception):
    pass


def test_a_child_is_a_row_that_runs_at_once_and_its_result_is_the_value() -> None:
    def body() -> Workflow[str]:
        return (yield from child(7)) + "!"

    run = Driver(body)
    assert shown(run.turn()) == ["open child core.child at 1 RUNNING", "WAITING child core.child at 1"]
    run.succeed("1", "done")
    assert shown(run.turn()) == ["take 1", "COMPLETED 'done!'"]


def test_its_row_keeps_the_call_and_the_terms_it_is_started_on() -> None:
    def body() -> Workflow[None]:
        options: Any = {"parent_close": "abandon", "priority": 3, "memo": {"a": 1}, "subject": ("shop.Order", "5")}
        yield from child.using(execution_timeout=5, attributes={"b": [1]}, **options)(number=7)

    (opening,) = Driver(body).turn().openings
    assert opening.args == '[[],{"number":7}]'
    assert ChildTerms.from_text(opening.options) == ChildTerms(
        version=1, key="child-7", queue="slow", priority=3, execution_timeout=5, parent_close="abandon",
        memo={"a": 1}, attributes={"b": [1]}, subject=("shop.order", "5"),
    )  # fmt: skip
    assert opening.options.isascii()


def test_outside_of_a_body_it_says_what_to_use() -> None:
    calls: list[Any] = [child, child.using(key="x")]
    for call in calls:
        with pytest.raises(NotInWorkflow, match=r"child\.start\(\.\.\.\)"):
            call(1)


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: other(5), TypeError, "too many positional arguments"),  # type: ignore[call-arg]
        (lambda: other.using(id="x")(), UsageError, "a child of core.other has its parent's id"),
        (lambda: other.using(subject="x")(), BadValue, "subject must be a saved model instance"),
    ],
)
def test_a_wrong_call_is_refused_where_it_is_made(call: Any, error: type[Exception], text: str) -> None:
    def body() -> Workflow[str]:
        with pytest.raises(error, match=text):
            call()
        yield from a()
        return "ok"

    run = Driver(body, twice=False)
    run.turn()
    run.succeed("1")
    assert run.turn().value == "ok"


def test_a_failed_child_is_an_error_with_everything_known_of_it() -> None:
    def body() -> Workflow[Any]:
        try:
            yield from other()
        except ChildFailed as error:
            return error
        return None

    try:
        raise StepFailed("step x failed", step="x", error_type="m.Declined", error_types=("m.Declined", "m.Payment"))
    except StepFailed as raised:
        failure = failure_of(raised)
    run = Driver(body)
    run.turn()
    run.end_child("1", failure)
    error = run.decide().value

    assert (error.workflow, error.position, error.child_status) == ("core.other", "1", "FAILED")
    assert error.child_id == str(identity.child_id(INSTANCE, "1"))
    assert error.message == "step x failed"
    assert error.error_type == "durable_celery.errors.StepFailed"
    assert "StepFailed: step x failed" in error.traceback
    assert (error.cancelled, error.timed_out) == (False, False)
    assert error.matches(StepFailed)
    assert error.matches("m.Payment")
    assert not error.matches(Declined)
    assert [str(cause) for cause in error.causes] == ["Declined"]
    assert str(error) == f"child core.other at 1 ({error.child_id}) is FAILED: StepFailed: step x failed"


@pytest.mark.parametrize(
    ("state", "failure", "status", "flags"),
    [
        ("CANCELLED", Failure(type="Cancelled", message="enough", cancelled=True), "CANCELLED", (True, False)),
        ("FAILED", Failure(type=TERMINATED, message="stop"), "TERMINATED", (False, False)),
        ("FAILED", Failure(type="T", message="late", timed_out=True), "FAILED", (False, True)),
        ("FAILED", None, "FAILED", (False, False)),
    ],
)
def test_how_it_ended_is_told(state: str, failure: Failure | None, status: str, flags: tuple[bool, bool]) -> None:
    def body() -> Workflow[Any]:
        try:
            yield from other()
        except ChildFailed as error:
            return [error.child_status, (error.cancelled, error.timed_out), error.message]
        return None

    run = Driver(body)
    run.turn()
    run.end_child("1", failure, state=state)
    message = failure.message if failure else "no error was recorded"
    assert run.turn().value == [status, flags, message]


def test_an_uncaught_one_fails_the_parent_with_the_chain() -> None:
    def body() -> Workflow[int]:
        return (yield from other())

    run = Driver(body)
    run.turn()
    cause = Cause(type="m.Declined", types=("m.Declined",), message="no funds", attributes={"code": 3})
    run.end_child("1", Failure(type="S", types=("S",), message="step failed", causes=(cause,)))
    decision = run.turn()
    assert decision.state == "FAILED"
    assert decision.failure is not None
    assert decision.failure.causes == (Cause(type="S", types=("S",), message="step failed"), cause)
    assert Failure.from_text(decision.failure.to_text()) == decision.failure


def test_another_workflow_at_its_position_is_a_mismatch() -> None:
    flips = iter([True, False])

    def body() -> Workflow[Any]:
        return (yield from (other() if next(flips) else child(1)))

    run = Driver(body, twice=False)
    run.turn()
    run.succeed("1", 1)
    decision = run.turn()
    assert decision.state == "BLOCKED"
    assert "recorded is child core.other, the body now asks for child core.child" in run.error


# -- side by side ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_children_of_a_gather_join_and_give_results_in_yield_order(order: tuple[int, ...]) -> None:
    def body() -> Workflow[Any]:
        return (yield from gather(child(1), other(), a()))

    run = Driver(body)
    assert [(o.position, o.join) for o in run.turn().openings] == [("1", ""), ("1.0", "1"), ("1.1", "1"), ("1.2", "1")]
    for index in order:
        run.succeed(f"1.{index}", index)
    assert run.turn().value == (0, 1, 2)


def test_a_limit_starts_one_child_as_another_ends() -> None:
    def body() -> Workflow[Any]:
        return (yield from gather(*[child(n) for n in range(4)], limit=2))

    run = Driver(body)
    run.turn()
    assert list(run.entries) == ["1", "1.0", "1.1"]
    run.succeed("1.1", "b")
    run.turn()
    assert list(run.entries) == ["1", "1.0", "1.1", "1.2"]
    for position in ("1.0", "1.2"):
        run.succeed(position, position)
    run.turn()
    run.succeed("1.3", "d")
    assert run.turn().value == ("1.0", "b", "1.2", "d")


def test_enough_results_give_up_the_other_children() -> None:
    def body() -> Workflow[Any]:
        return (yield from gather(other(), other(), needed=1))

    run = Driver(body)
    run.turn()
    run.succeed("1.1", 1)
    decision = run.turn()
    assert decision.value == (None, 1)
    assert dict(decision.told) == {"1.0": "its parent does not need it any more"}


@pytest.mark.parametrize("close", ["cancel", "terminate", "abandon"])
def test_a_child_that_lost_a_race_is_told(close: str) -> None:
    def body() -> Workflow[Any]:
        won = yield from race(mine=other.using(parent_close=close)(), late=sleep(5))
        yield from a()
        return won.name

    run = Driver(body)
    run.turn()
    run.pass_time(5)
    decision = run.turn()
    assert decision.withdrawn == ("1.0",)
    assert dict(decision.told) == {"1.0": "its parent does not need it any more"}
    assert run.entries["1.0"].state == "ABANDONED"
    run.succeed("1.0", 3)  # all the same: kept, not delivered
    run.succeed("2")
    assert run.turn().value == "late"
    assert run.entries["1.0"].taken_turn is None


def test_a_child_that_lost_before_it_was_started_never_is() -> None:
    def body() -> Workflow[Any]:
        yield from a()
        won = yield from race(other(), sleep(0))
        yield from a()
        return won.name

    run = Driver(body)
    run.turn()
    run.succeed("1")
    run.turn()
    run.turn()
    assert run.entries["2.0"].state in ("ABANDONED", "CANCELLED")
    run.succeed("3")
    assert run.turn().value == 1


# -- cancelling --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("close", ["cancel", "terminate"])
def test_a_cancel_is_handed_down_and_waits_for_the_child(close: str) -> None:
    def body() -> Workflow[Any]:
        try:
            yield from other.using(parent_close=close)()
        finally:
            yield from b()

    run = Driver(body)
    run.turn()
    run.cancel("enough")
    decision = run.turn()
    assert dict(decision.told) == {"1": "its parent was asked to end: enough"}
    assert decision.withdrawn == ()
    assert list(run.entries) == ["1"]
    run.end_child("1", Failure(type="Cancelled", cancelled=True), state="CANCELLED")
    assert run.turn().state == "WAITING"
    run.succeed("2")
    assert run.turn().state == "CANCELLED"


def test_a_child_that_succeeds_all_the_same_gives_its_value_first() -> None:
    seen = []

    def body() -> Workflow[Any]:
        seen.append((yield from other()))
        yield from a()

    run = Driver(body)
    run.turn()
    run.cancel()
    run.turn()
    run.succeed("1", 5)
    assert run.turn().state == "CANCELLED"
    assert set(seen) == {5}
    assert list(run.entries) == ["1"]


def test_one_that_is_to_be_abandoned_is_left_alone_and_not_waited_for() -> None:
    def body() -> Workflow[Any]:
        yield from other.using(parent_close="abandon")()

    run = Driver(body)
    run.turn()
    run.cancel()
    decision = run.turn()
    assert decision.state == "CANCELLED"
    assert dict(decision.told) == {}


def test_a_shielded_one_is_not_told() -> None:
    def body() -> Workflow[Any]:
        yield from shield(other())
        yield from a()

    run = Driver(body)
    run.turn()
    run.cancel()
    decision = run.turn()
    assert (decision.state, dict(decision.told)) == ("WAITING", {})
    run.succeed("1", 5)
    assert run.turn().state == "CANCELLED"


def test_a_second_cancel_tells_nobody() -> None:
    def body() -> Workflow[Any]:
        yield from other()

    run = Driver(body)
    run.turn()
    run.cancel()
    run.turn()
    run.cancel()
    assert dict(run.turn().told) == {}


def test_a_cancel_gives_up_what_waits_beside_a_child_and_waits_for_the_child() -> None:
    def body() -> Workflow[Any]:
        yield from gather(other(), a(), sleep(50))

    run = Driver(body)
    run.turn()
    run.cancel()
    decision = run.turn()
    assert set(decision.withdrawn) == {"1.1", "1.2"}
    assert list(decision.told) == ["1.0"]
    assert decision.markers == {"cancel:1": '["1.0"]'}
    run.end_child("1.0", Failure(type="Cancelled", cancelled=True), state="CANCELLED")
    assert run.turn().state == "CANCELLED"


def test_a_child_of_the_cleanup_runs() -> None:
    def body() -> Workflow[Any]:
        try:
            yield from sleep(50)
        finally:
            yield from other()

    run = Driver(body)
    run.turn()
    run.cancel()
    (opening,) = run.turn().openings
    assert (opening.kind, opening.shielded) == ("child", True)
    run.succeed("2", 1)
    assert run.turn().state == "CANCELLED"


def test_terms_of_a_newer_release_are_read() -> None:
    assert ChildTerms.from_text('{"version":3,"colour":"red"}') == ChildTerms(version=3)
    assert ChildTerms.from_text("") == ChildTerms()
    assert ChildTerms().to_text() == "{}"
    assert transitions.ABANDONED in transitions.STEP[transitions.RUNNING]
