"""Bodies that end at once, ends that are declared, and replaying what has ended."""

from __future__ import annotations

from typing import Any

import pytest

from durable_celery import Workflow, WorkflowFailed, gather, sleep
from durable_celery.core import transitions
from durable_celery.core.decision import Decision
from tests.core.bodies import Declined, DeclinedAbroad, LowFunds
from tests.core.driver import Driver, a, b, c, shown

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
    assert (failure.type, failure.message, failure.attributes) == (
        "tests.core.bodies.LowFunds",
        "no money",
        {"code": 51},
    )
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
