"""Steps that fail: what the body gets, and what it may yield while it handles that."""

from __future__ import annotations

import pytest

from durable_celery import StepFailed, Workflow
from durable_celery.core.failure import Cause, Failure
from tests.core.bodies import Declined, LowFunds
from tests.core.driver import Driver, a, b, c, shown


def test_a_failed_step_raises_with_everything_that_is_known() -> None:
    caught = []

    def body() -> Workflow[str]:
        try:
            yield from a(1)
        except StepFailed as error:
            caught.append(error)
        return "handled"

    run = Driver(body)
    run.turn()
    run.claim("1")
    run._set(run.entries["1"], attempt=3)
    run.fail("1", LowFunds("no money", code=51))
    run.turn()

    error = caught[-1]
    assert str(error) == "step core.a at 1 failed after 3 attempts: LowFunds: no money"
    assert (error.step, error.position, error.attempts) == ("core.a", "1", 3)
    assert (error.error_type, error.message) == ("tests.core.bodies.LowFunds", "no money")
    assert error.attributes == {"code": 51}
    assert (error.timed_out, error.lost, error.cancelled) == (False, False, False)
    assert "LowFunds: no money" in error.traceback
    assert error.instance_id == run.journal().instance_id
    assert error.matches(LowFunds)
    assert error.matches(Declined)
    assert error.matches(KeyError, Exception)
    assert error.matches("tests.core.bodies.Declined")
    assert not error.matches(ValueError, "Declined")


@pytest.mark.parametrize(("time_out", "loss"), [(True, False), (False, True)])
def test_a_step_that_timed_out_or_was_lost_says_so(time_out: bool, loss: bool) -> None:
    def body() -> Workflow[tuple[bool, bool]]:
        try:
            yield from a()
        except StepFailed as error:
            return error.timed_out, error.lost
        return False, False

    run = Driver(body)
    run.turn()
    run.fail("1", time_out=time_out, loss=loss)

    assert run.turn().value == (time_out, loss)


def test_earlier_errors_of_a_step_are_listed() -> None:
    def body() -> Workflow[tuple[str, ...]]:
        try:
            yield from a()
        except StepFailed as error:
            return error.earlier
        return ()

    run = Driver(body)
    run.turn()
    run.fail("1")
    failure = Failure(type="E", types=("E",), message="x", earlier=("E: w", "E: v"))
    run._set(run.entries["1"], failure=failure.to_text())

    assert run.turn().value == ("E: w", "E: v")


def test_a_step_that_failed_without_a_word_fails_all_the_same() -> None:
    def body() -> Workflow[None]:
        yield from a()

    run = Driver(body)
    run.turn()
    run.fail("1")
    run._set(run.entries["1"], failure=None)

    assert run.turn().failure == Failure(
        type="durable_celery.errors.StepFailed",
        types=run.decisions[-1].failure.types if run.decisions[-1].failure else (),
        message="step core.a at 1 failed after 1 attempt: Unknown: no error was recorded",
        traceback=run.decisions[-1].failure.traceback if run.decisions[-1].failure else "",
        attributes=run.decisions[-1].failure.attributes if run.decisions[-1].failure else {},
        causes=(Cause(type="Unknown", message="no error was recorded"),),
    )


def test_a_failed_step_that_is_not_caught_fails_the_workflow() -> None:
    def body() -> Workflow[None]:
        yield from a()
        yield from b()

    run = Driver(body)
    run.turn()
    run.fail("1", ValueError("no luck"))

    assert shown(run.turn()) == [
        "take 1",
        "FAILED StepFailed: step core.a at 1 failed after 1 attempt: ValueError: no luck",
    ]


# -- O-22: yields while an error is handled ------------------------------------------------------------------------


def test_o22_every_step_in_an_except_block_runs_once() -> None:
    def body() -> Workflow[str]:
        y = None
        try:
            yield from a()
        except StepFailed:
            x = yield from b()
            y = yield from c(x)
        return str(y)

    run = Driver(body)
    lines = [shown(run.turn())]
    run.fail("1")
    lines.append(shown(run.turn()))
    run.succeed("2", "x")
    lines.append(shown(run.turn()))
    run.succeed("3", "y")
    lines.append(shown(run.turn()))

    assert lines == [
        ["open step core.a at 1 SCHEDULED", "WAITING step core.a at 1"],
        ["open step core.b at 2 SCHEDULED", "take 1", "WAITING step core.b at 2"],
        ["open step core.c at 3 SCHEDULED", "take 2", "WAITING step core.c at 3"],
        ["take 3", "COMPLETED 'y'"],
    ]


def test_an_error_is_raised_again_after_yields_in_its_handler() -> None:
    def body() -> Workflow[None]:
        try:
            yield from a()
        except StepFailed:
            yield from b()
            raise

    run = Driver(body).play(lambda entry: ValueError("no luck") if entry.name == "core.a" else None)

    assert run.state == "FAILED"
    assert run.error == "StepFailed: step core.a at 1 failed after 1 attempt: ValueError: no luck"


def test_cleanup_that_is_yielded_in_finally_runs_before_the_error_leaves() -> None:
    def body() -> Workflow[None]:
        try:
            yield from a()
        finally:
            yield from b()

    run = Driver(body).play(lambda entry: ValueError("no luck") if entry.name == "core.a" else None)

    assert (run.state, list(run.states())) == ("FAILED", ["1", "2"])


def test_a_failed_step_in_a_handler_replaces_the_error() -> None:
    def body() -> Workflow[None]:
        try:
            yield from a()
        except StepFailed:
            yield from b()

    run = Driver(body).play(lambda entry: ValueError(f"no {entry.name}"))

    assert run.error == "StepFailed: step core.b at 2 failed after 1 attempt: ValueError: no core.b"


def test_an_error_may_be_caught_and_tried_again_many_times() -> None:
    def body() -> Workflow[int]:
        for number in range(10):
            try:
                yield from a(number)
            except StepFailed:
                continue
            return number
        return -1

    run = Driver(body).play(lambda entry: 1 if entry.position == "8" else ValueError("no luck"))

    assert (run.value, list(run.states())) == (7, [str(i) for i in range(1, 9)])
