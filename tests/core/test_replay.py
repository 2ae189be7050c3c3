"""A body driven turn by turn: values, errors, yields in except and finally, bodies that end at once."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from durable_celery import StepFailed, Workflow, WorkflowFailed, gather, sleep, step
from durable_celery.core import transitions
from durable_celery.core.decision import Closing, Decision, Opening
from durable_celery.core.failure import Failure
from tests.core.driver import BEGIN, Driver, a, b, c, shown

TERMS = (
    '{"retry":{"initial_interval":2.0,"backoff_coefficient":2.0,"maximum_interval":600.0,"maximum_attempts":5,'
    '"jitter":true,"non_retryable":[],"retry_on":[]},"start_to_close":300.0,"on_lost":"rerun"}'
)


def step_at(position: str, name: str, args: str, **more: Any) -> Opening:
    return Opening(position=position, kind="step", name=name, state="SCHEDULED", args=args, options=TERMS, **more)


def test_each_turn_opens_what_the_body_asks_for_next() -> None:
    def body(order: int) -> Workflow[tuple[int, str]]:
        first = yield from a(order)
        second = yield b(first, colour="red")
        yield from sleep(60)
        return first, second

    run = Driver(body, 7)

    assert run.turn() == Decision(
        state="WAITING", openings=(step_at("1", "core.a", "[[7],{}]"),), waiting="step core.a at 1"
    )
    run.succeed("1", 5)
    assert run.turn() == Decision(
        state="WAITING",
        openings=(step_at("2", "core.b", '[[5],{"colour":"red"}]'),),
        taken_entries={1: 0},
        waiting="step core.b at 2",
    )
    run.succeed("2", "done")
    due = BEGIN + timedelta(seconds=62)
    assert run.turn() == Decision(
        state="WAITING",
        openings=(Opening(position="3", kind="timer", state="SCHEDULED", due_at=due),),
        taken_entries={2: 0},
        waiting="sleep at 3 until 2026-11-01 08:31:02 UTC",
    )
    run.pass_time(60)
    assert run.turn() == Decision(
        state="COMPLETED",
        value=(5, "done"),
        closings=(Closing(position="3", state="SUCCEEDED", at=due),),
        taken_entries={3: 0},
    )


def test_a_step_carries_its_terms_times_queue_and_compensation() -> None:
    @step(name="core.vip")
    def charge(order: int) -> None: ...

    vip = charge.using(
        queue="vip", retry=None, schedule_to_start_timeout=5, schedule_to_close_timeout=timedelta(minutes=2), priority=3
    )

    def body() -> Workflow[None]:
        yield from vip(1).compensate_with(b(2))

    opening = Driver(body).turn().openings[0]

    assert opening.queue == "vip"
    assert opening.start_by_at == BEGIN + timedelta(seconds=5)
    assert opening.end_by_at == BEGIN + timedelta(seconds=120)
    assert '"maximum_attempts":1' in opening.options
    assert '"schedule_to_start":5.0,"schedule_to_close":120.0' in opening.options
    assert '"name": "core.b", "args": "[[2],{}]"' in opening.compensation


def test_values_are_decoded_copies_live_and_on_replay() -> None:
    seen = []

    def body() -> Workflow[bool]:
        value = yield from a()
        seen.append(value)
        value["list"].append("changed by the body")
        again = yield from b()
        return bool(value == again)

    run = Driver(body).play(lambda entry: {"list": [1, (2, 3)], "set": {4}, "bytes": b"5"})

    assert run.value is False
    assert all(type(value["list"][1]) is tuple for value in seen)
    assert all(value == {"list": [1, (2, 3), "changed by the body"], "set": {4}, "bytes": b"5"} for value in seen)
    assert len({id(value) for value in seen}) == len(seen)


def test_the_arguments_of_a_step_are_those_at_its_call() -> None:
    def body() -> Workflow[None]:
        items = [1]
        command = a(items)
        items.append(2)
        yield from command

    assert Driver(body).turn().openings[0].args == "[[[1]],{}]"


class Declined(Exception): ...


class DeclinedAbroad(Declined): ...


class LowFunds(Declined):
    def __init__(self, text: str, code: int) -> None:
        super().__init__(text)
        self.code = code


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
    assert (error.error_type, error.message) == (f"{__name__}.LowFunds", "no money")
    assert error.attributes == {"code": 51}
    assert (error.timed_out, error.lost, error.cancelled) == (False, False, False)
    assert "LowFunds: no money" in error.traceback
    assert error.instance_id == run.journal().instance_id
    assert error.matches(LowFunds)
    assert error.matches(Declined)
    assert error.matches(KeyError, Exception)
    assert error.matches(f"{__name__}.Declined")
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


# -- helper generators ---------------------------------------------------------------------------------------------


def test_helper_generators_take_no_position_and_hand_their_value_on() -> None:
    def twice(number: int) -> Workflow[int]:
        first: int = yield from a(number)
        second: int = yield from a(first)
        return first + second

    def body() -> Workflow[int]:
        left = yield from twice(1)
        right = yield from twice(2)
        return left * right

    run = Driver(body).play(lambda entry: int(entry.position))

    assert run.value == (1 + 2) * (3 + 4)
    assert list(run.states()) == ["1", "2", "3", "4"]


def test_many_waits_in_a_row_are_one_wait_a_turn() -> None:
    def body() -> Workflow[int]:
        total: int = 0
        for number in range(100):
            total += yield from a(number)
        return total

    run = Driver(body).play(lambda entry: 1)

    assert (run.value, len(run.decisions)) == (100, 101)


# -- O-24: bodies that end at once ---------------------------------------------------------------------------------


def test_o24_a_body_that_returns_before_its_first_yield() -> None:
    def body() -> Workflow[int]:
        return 5
        yield

    assert Driver(body).turn() == Decision(state="COMPLETED", value=5)


def test_o24_a_body_that_yields_on_another_path() -> None:
    def body(early: bool) -> Workflow[int]:
        if early:
            return 6
        yield from a()
        return 7

    assert Driver(body, True).turn() == Decision(state="COMPLETED", value=6)


def test_o24_a_plain_function_is_a_body() -> None:
    def body(number: int) -> int:
        return number + 1

    assert Driver(body, 6).turn() == Decision(state="COMPLETED", value=7)


def test_o24_a_body_that_returns_nothing() -> None:
    def body() -> None: ...

    assert Driver(body).turn() == Decision(state="COMPLETED", value=None)


@pytest.mark.parametrize("yields", [True, False], ids=["generator", "plain function"])
def test_o24_an_early_error_blocks_unless_it_is_declared(yields: bool) -> None:
    def generator(kind: type[BaseException]) -> Workflow[None]:
        raise kind("x")
        yield

    def plain(kind: type[BaseException]) -> None:
        raise kind("x")

    body = generator if yields else plain

    assert Driver(body, Declined).turn().state == transitions.BLOCKED
    assert Driver(body, StopIteration).turn().state == transitions.BLOCKED
    assert Driver(body, SystemExit).turn().state == transitions.BLOCKED
    assert Driver(body, GeneratorExit).turn().state == transitions.BLOCKED
    assert Driver(body, Declined, fails_on=(Declined,)).turn().state == transitions.FAILED
    assert Driver(body, DeclinedAbroad, fails_on=(Declined,)).turn().state == transitions.FAILED
    assert Driver(body, WorkflowFailed).turn().state == transitions.FAILED


def test_a_declared_error_keeps_its_own_type() -> None:
    def body() -> Workflow[None]:
        yield from a()
        raise LowFunds("no money", code=51)

    run = Driver(body, fails_on=(Declined,)).play()
    failure = run.decisions[-1].failure

    assert failure is not None
    assert (failure.type, failure.message, failure.attributes) == (f"{__name__}.LowFunds", "no money", {"code": 51})
    assert "raise LowFunds" in failure.traceback


# -- what replay is for --------------------------------------------------------------------------------------------


def test_a_body_wrapped_by_a_decorator_that_says_so_is_driven() -> None:
    from functools import partial, wraps

    def body(number: int) -> Workflow[int]:
        result: int = yield from a(number)
        return result

    @wraps(body)
    def wrapper(number: int) -> Workflow[int]:
        return body(number)

    assert Driver(wrapper, 3).play(lambda entry: 5).value == 5
    assert Driver(partial(body, 3)).play(lambda entry: 5).value == 5


def test_replaying_a_finished_journal_appends_nothing() -> None:
    def body() -> Workflow[list[Any]]:
        one = yield from a()
        several = yield from gather(b(), c(), sleep(5))
        return [one, *several]

    run = Driver(body).play()

    assert run.decide(recorded_only=True) == Decision(state="COMPLETED", value=["1", "2.0", "2.1", None])


def test_replaying_what_is_recorded_leaves_news_aside() -> None:
    def body() -> Workflow[None]:
        yield from a()
        yield from b()
        yield from c()

    run = Driver(body)
    run.turn()
    run.succeed("1")
    run.turn()
    run.succeed("2")

    assert run.decide(recorded_only=True) == Decision(state="WAITING", waiting="step core.b at 2")


def test_a_finished_failure_is_replayed_as_it_was() -> None:
    def body() -> Workflow[None]:
        try:
            yield from a()
        finally:
            yield from b()

    run = Driver(body).play(lambda entry: ValueError("no luck") if entry.name == "core.a" else None)
    again = run.decide(recorded_only=True)

    assert (again.state, again.openings, again.taken_entries) == ("FAILED", (), {})
    assert again.failure == run.decisions[-1].failure


def test_a_body_that_ends_earlier_than_its_finished_journal_does_not_fit_it() -> None:
    long = True

    def body() -> Workflow[None]:
        yield from a()
        if long:
            yield from b()

    run = Driver(body).play()
    long = False

    assert shown(run.decide(recorded_only=True))[0].startswith(
        "BLOCKED NonDeterminism: the code does not fit the journal at position 2: recorded is an outcome of this run"
    )


def test_a_value_that_cannot_be_decoded_blocks() -> None:
    def body() -> Workflow[None]:
        yield from a()

    run = Driver(body)
    run.turn()
    run.succeed("1")
    run._set(run.entries["1"], result='{"$":')
    decision = run.turn()

    assert decision == Decision(state="BLOCKED", failure=decision.failure, waiting=decision.waiting)
    assert "body, line" in decision.waiting


def test_what_stops_the_process_is_not_the_bodys() -> None:
    class SoftLimit(Exception): ...

    closed = []

    def body(error: BaseException) -> Workflow[None]:
        try:
            yield from a()
            raise error
        finally:
            closed.append(error)

    for error in (KeyboardInterrupt(), SoftLimit()):
        run = Driver(body, error)
        run.apply(run.decide())
        run.succeed("1")
        with pytest.raises(type(error)):
            run.decide(interrupts=lambda raised: isinstance(raised, (KeyboardInterrupt, SoftLimit)))
        assert closed == [error, error]
        closed.clear()
