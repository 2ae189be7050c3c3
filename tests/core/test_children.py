"""What a body gets of the workflows it yields: alone, and side by side."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from durable_celery import ChildFailed, NotInWorkflow, StepFailed, UsageError, Workflow, gather
from durable_celery.core import identity, transitions
from durable_celery.core.children import TERMINATED, ChildTerms
from durable_celery.core.failure import Cause, Failure, failure_of
from durable_celery.errors import BadValue
from tests.core.child_bodies import child, other
from tests.core.driver import INSTANCE, Driver, a, shown


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


def test_terms_of_a_newer_release_are_read() -> None:
    assert ChildTerms.from_text('{"version":3,"colour":"red"}') == ChildTerms(version=3)
    assert ChildTerms.from_text("") == ChildTerms()
    assert ChildTerms().to_text() == "{}"
    assert transitions.ABANDONED in transitions.STEP[transitions.RUNNING]
