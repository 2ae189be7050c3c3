"""A step asked again and again: what is an outcome of it, and what is not."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, cast

import pytest

from durable_celery import (
    CancelRequested,
    PollTimeout,
    Signal,
    StepFailed,
    Workflow,
    gather,
    now,
    poll,
    race,
    shield,
    side_effect,
    sleep,
    spawn,
    uuid4,
    wait_until,
)
from durable_celery.core import transitions
from durable_celery.core.failure import Failure
from durable_celery.errors import type_name
from tests.core.driver import BEGIN, Driver, a, b, c, shown, undo

go = Signal("go")


def polling(**options: Any) -> Any:
    def body() -> Workflow[Any]:
        value = yield from poll(a(), until=lambda answer: answer == "ready", **options)
        yield from b(value)
        return value

    return body


def test_a_result_that_is_not_liked_is_no_outcome() -> None:
    run = Driver(polling(every=30, timeout=3600))
    assert shown(run.turn()) == ["open poll core.a at 1 SCHEDULED", "WAITING poll of step core.a at 1"]
    assert run.decisions[0].openings[0].end_by_at == BEGIN + timedelta(hours=1)
    run.succeed("1", "not yet")
    assert shown(run.turn()) == ["again 1 at 08:30:31", "WAITING poll of step core.a at 1"]
    assert run.entries["1"].state == transitions.RETRYING
    assert not run.has_news()
    run.succeed("1", "nor now")
    assert shown(run.turn()) == ["again 1 at 08:30:32", "WAITING poll of step core.a at 1"]
    run.succeed("1", "ready")
    assert shown(run.turn()) == ["open step core.b at 2 SCHEDULED", "take 1", "WAITING step core.b at 2"]
    run.succeed("2")

    assert run.turn().value == "ready"
    assert list(run.entries) == ["1", "2"]


def test_replay_asks_nobody_whether_a_result_was_liked() -> None:
    asked: list[Any] = []

    def body() -> Workflow[Any]:
        value = yield from poll(a(), until=lambda answer: asked.append(answer) or True)  # type: ignore[func-returns-value]
        yield from b()
        return value

    run = Driver(body, twice=False)
    run.turn()
    run.succeed("1", 5)
    run.turn()
    assert asked == [5]
    run.succeed("2")
    assert run.turn().value == 5
    assert asked == [5]


def test_the_rules_stay_as_they_were_recorded() -> None:
    every = [30.0]

    def body() -> Workflow[Any]:
        return (yield from poll(a(), until=lambda answer: False, every=every[0]))

    run = Driver(body)
    run.turn()
    every[0] = 5
    run.succeed("1")
    assert [again.due_at for again in run.turn().again] == [run.now + timedelta(seconds=30)]


def test_a_failure_of_the_step_is_its_failure() -> None:
    def body() -> Workflow[Any]:
        try:
            yield from poll(a(), until=bool)
        except StepFailed as error:
            return error.position, error.error_type

    run = Driver(body)
    run.turn()
    run.fail("1")
    assert run.turn().value == ("1", "ValueError")


def test_its_time_out_is_an_error_of_its_own() -> None:
    def body() -> Workflow[Any]:
        try:
            yield from poll(a(), until=bool, timeout=60)
        except PollTimeout as error:
            return error.position, str(error)

    run = Driver(body)
    run.turn()
    run.claim("1")
    name = type_name(PollTimeout)
    failure = Failure(type=name, types=(name,), message="no result was liked within 60 s, 1 start", timed_out=True)
    run._set(run.entries["1"], state=transitions.FAILED, failure=failure.to_text(), finished_at=run.now)

    text = "poll of step core.a at 1: no result was liked within 60 s, 1 start"
    assert run.turn().value == ("1", text)


def test_a_poll_that_loses_a_race_is_not_asked_again() -> None:
    def body() -> Workflow[Any]:
        winner = yield from race(poll(a(), until=lambda answer: False), go.wait())
        yield from b()
        return winner.name

    run = Driver(body)
    run.turn()
    run.succeed("1.0", "no")
    run.signal("go")
    decision = run.turn()
    assert decision.again == ()
    assert decision.withdrawn == ("1.0",)
    assert run.entries["1.0"].abandoned
    assert not run.has_news()


def test_a_body_that_ends_while_a_poll_has_just_answered_gives_it_up() -> None:
    def body() -> Workflow[Any]:
        yield from spawn(poll(a(), until=lambda answer: False))
        return (yield from b())

    run = Driver(body)
    run.turn()
    run.succeed("1.0", "no")
    run.succeed("2", "end")
    decision = run.turn()
    assert (decision.value, decision.again) == ("end", ())
    assert "1.0" in decision.withdrawn


def test_polls_side_by_side_each_need_a_turn() -> None:
    def body() -> Workflow[Any]:
        return (yield from gather(poll(a(), until=bool), b(), poll(c(), until=bool)))

    run = Driver(body)
    joins = {opening.position: opening.join for opening in run.turn().openings}
    assert joins == {"1": "", "1.0": "", "1.1": "1", "1.2": ""}
    for position, value in (("1.0", 0), ("1.2", 0), ("1.0", 1), ("1.1", "b"), ("1.2", 2)):
        run.succeed(position, value)
        run.turn()

    assert run.value == (1, "b", 2)


def test_a_result_that_is_not_liked_is_no_occasion_to_look_at_conditions() -> None:
    """It is in no journal, so replay could not find the moment again."""

    def body() -> Workflow[Any]:
        late = BEGIN + timedelta(seconds=5)
        winner = yield from race(poll(a(), until=bool), wait_until(lambda: now() >= late), go.wait())
        yield from b()
        return winner.name, str(uuid4())

    run = Driver(body)
    run.turn()
    run.pass_time(10)
    run.succeed("1.0", 0)
    assert "2" not in run.entries
    run.turn()
    assert "2" not in run.entries
    run.signal("nobody reads it")
    run.turn()
    assert "2" in run.entries
    run.succeed("2")
    assert run.turn().value[0] == 1


# -- cancelling ----------------------------------------------------------------------------------------------------


def test_a_cancel_between_two_runs_gives_it_up() -> None:
    run = Driver(polling())
    run.turn()
    run.succeed("1", "no")
    run.turn()
    run.cancel("why")
    assert shown(run.turn()) == ["give up 1", "take message 1", "mark cancel:1 []", "CANCELLED Cancelled: why"]


@pytest.mark.parametrize("answer", ["ready", "no"])
def test_a_run_that_is_under_way_at_the_cancel_is_the_last(answer: str) -> None:
    def body() -> Workflow[Any]:
        seen = []
        try:
            seen.append((yield from poll(a(), until=lambda answer: answer == "ready")))
            yield from b()
        except CancelRequested:
            yield from c(seen)
            raise

    run = Driver(body)
    run.turn()
    run.claim("1")
    run.cancel("why")
    assert shown(run.turn()) == ["take message 1", 'mark cancel:1 ["1"]', "WAITING poll of step core.a at 1"]
    run.succeed("1", answer)
    decision = run.turn()
    assert [opening.position for opening in decision.openings] == ["2"]
    assert decision.openings[0].args == ('[[["ready"]],{}]' if answer == "ready" else "[[[]],{}]")
    assert decision.again == ()
    assert len(decision.taken_entries) == 1
    run.succeed("2")

    assert shown(run.turn())[-1] == "CANCELLED Cancelled: why"


def test_a_shielded_or_spawned_poll_goes_on_after_the_cancel() -> None:
    def shielded() -> Workflow[Any]:
        yield from shield(poll(a(), until=bool))

    run = Driver(shielded)
    run.turn()
    run.cancel("why")
    run.turn()
    run.succeed("1", 0)
    assert [again.position for again in run.turn().again] == ["1"]
    run.succeed("1", 1)
    assert run.turn().state == "CANCELLED"


# -- what does not fit -----------------------------------------------------------------------------------------------


def asked_with(until: Any) -> Driver:
    def body() -> Workflow[Any]:
        try:
            yield from poll(a(), until=until)
        except Exception:
            return "swallowed"

    run = Driver(body)
    run.turn()
    run.succeed("1", 5)
    run.turn()
    return run


@pytest.mark.parametrize(
    ("until", "told"),
    [
        (lambda answer: answer["x"], "TypeError"),
        (lambda answer: b(), "step core.b in until of the poll of step core.a at 1, which may only look"),
        (lambda answer: side_effect(int), "side_effect() in until of the poll of step core.a at 1"),
    ],
)
def test_an_error_of_until_blocks_and_loses_nothing(until: Any, told: str) -> None:
    run = asked_with(until)
    assert run.state == "BLOCKED"
    assert told in run.decisions[-1].waiting
    assert run.has_news()


def wrongly(make: Any) -> str:
    def body() -> Workflow[Any]:
        yield from make()

    return Driver(body).turn().waiting


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: poll(sleep(5), until=bool), "poll takes the call of a step without a compensation, got sleep"),
        (lambda: poll(a().compensate_with(undo), until=bool), "got step core.a with a compensation"),
        (lambda: poll(a(), until=cast(Any, True)), "poll needs until=, a function of the result, got True"),
        (lambda: poll(a(), until=bool, every=0), "every=0 of poll must be over 0"),
        (lambda: poll(a(), until=bool, every=-1), "every of poll"),
        (lambda: poll(a(), until=bool, timeout=cast(Any, "soon")), "timeout of poll"),
        (lambda: poll(cast(Any, ()), until=bool), "poll member 0 is a tuple ()"),
    ],
)
def test_what_cannot_be_polled_is_refused(make: Any, told: str) -> None:
    assert told in wrongly(make)
