"""What the sweep does with a row whose time has come."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from durable_celery.core import transitions as t
from durable_celery.core.failure import Failure, timed_out
from durable_celery.engine.verdicts import Verdict, judge, patience
from durable_celery.ports import OpenStep, StepChange
from tests.core.test_verdicts import NOW, again, at, ended, options, running


def waiting(state: str = t.SCHEDULED, **values: Any) -> OpenStep:
    """A row in the queue since second 80, already sent again once."""
    standard: dict[str, Any] = {
        "attempt": 0, "token": None, "lease_id": None, "pid": None, "started_at": None, "start_by_at": None,
        "close_at": None, "resends": 1,
    }  # fmt: skip
    return running(state, **standard | values)


def judged(step: OpenStep, now: datetime = NOW, **more: Any) -> Verdict:
    return judge(step, now, 1.0, **more)


def failed(step: OpenStep, text: str, **values: Any) -> StepChange:
    return ended(t.FAILED, attempt=step.attempt, failure=timed_out(text).to_text(), **values)


# -- in the queue --------------------------------------------------------------------------------------------------


def test_a_row_that_nobody_claimed_is_sent_again_with_growing_patience() -> None:
    step, waits = waiting(resends=1), []
    for _ in range(9):
        verdict = judged(step)
        assert verdict == Verdict(dispatch=True, look_at=verdict.look_at, resends=step.resends + 1)
        assert verdict.look_at is not None
        waits.append((verdict.look_at - NOW).total_seconds())
        step = replace(step, resends=verdict.resends)

    assert waits == [6, 12, 24, 48, 96, 192, 300, 300, 300]


def test_patience_has_a_cap_and_grows_with_the_backlog() -> None:
    assert [patience(n).total_seconds() for n in (0, 1, 2, 6, 7, 100, 10**9)] == [3, 6, 12, 192, 300, 300, 300]


def test_a_row_that_may_still_wait_its_turn_is_looked_at_then() -> None:
    fresh = waiting(resends=0, scheduled_at=at(99))

    assert judged(fresh) == Verdict(look_at=at(102))
    assert judged(fresh, at(102)).dispatch
    assert judged(fresh, at(102), lag=timedelta(seconds=10)) == Verdict(look_at=at(107))
    assert judged(fresh, at(121), lag=timedelta(seconds=10)) == Verdict(look_at=at(122))
    assert judged(fresh, at(122), lag=timedelta(seconds=10)).dispatch


def test_the_next_look_is_no_later_than_a_time_out() -> None:
    assert judged(waiting(start_by_at=at(103), end_by_at=at(500))).look_at == at(103)
    assert judged(waiting(start_by_at=at(500), end_by_at=at(104))).look_at == at(104)


def test_a_retry_that_is_not_due_yet_is_looked_at_when_it_is() -> None:
    assert judged(waiting(t.RETRYING, due_at=at(150))) == Verdict(look_at=at(150))
    assert judged(waiting(t.RETRYING, due_at=at(150), end_by_at=at(120))) == Verdict(look_at=at(120))
    assert judged(waiting(t.RETRYING, due_at=at(100))).dispatch


def test_a_row_that_was_not_started_in_time_fails_for_good() -> None:
    step = waiting(start_by_at=at(100), options=options(schedule_to_start=20))

    assert judged(step) == Verdict(change=failed(step, "not started within schedule_to_start_timeout of 20 s"))
    assert judged(step, at(99.9)).dispatch


def test_a_retry_that_was_not_started_in_time_keeps_its_earlier_errors() -> None:
    before = Failure(type="E", types=("E",), message="x")
    step = waiting(t.RETRYING, attempt=2, due_at=at(90), start_by_at=at(95), failure=before.to_text())
    change = judged(step).change

    assert change is not None
    assert Failure.from_text(change.failure or "").earlier == ("E: x",)


# -- all attempts together -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("state", "attempt", "outcome"),
    [
        (t.SCHEDULED, 0, ""),
        (t.RETRYING, 2, ""),
        (t.RUNNING, 1, "timed out"),
        (t.EXTERNAL, 1, "timed out"),
        (t.ABANDONED, 1, "timed out"),
    ],
)
def test_the_deadline_of_all_attempts_ends_a_row_in_every_state(state: str, attempt: int, outcome: str) -> None:
    step = running(state, attempt=attempt, end_by_at=at(100), due_at=at(500), close_at=at(90))
    attempts = "1 attempt" if attempt == 1 else f"{attempt} attempts"

    assert judged(step) == Verdict(
        change=failed(
            step,
            f"not finished within schedule_to_close_timeout, {attempts}",
            unknown_end=bool(outcome),
            look_at=None if state == t.ABANDONED else at(102),
        ),
        outcome=outcome,
    )
    assert t.FAILED in t.STEP[state]


def test_the_deadline_of_all_attempts_is_not_reached_before_its_time() -> None:
    assert judged(running(end_by_at=at(100.1))).change is None


def test_a_member_held_back_is_left_alone() -> None:
    assert judged(waiting(t.HELD, end_by_at=at(1), start_by_at=at(1))) == Verdict()


# -- one attempt ---------------------------------------------------------------------------------------------------


def test_an_attempt_beyond_its_time_is_fenced_and_tried_again() -> None:
    step = running(close_at=at(100))
    failure = timed_out("the attempt ran longer than start_to_close_timeout of 60 s")

    assert judged(step) == Verdict(
        change=again(130, failures=1, failure=failure.to_text(), unknown_end=True), outcome="timed out"
    )
    assert judged(step, at(99.9)) == Verdict(look_at=at(100))


def test_the_last_attempt_beyond_its_time_fails() -> None:
    step = running(close_at=at(100), failures=2, attempt=3)

    assert judged(step) == Verdict(
        change=failed(step, "the attempt ran longer than start_to_close_timeout of 60 s", failures=3, unknown_end=True),
        outcome="timed out",
    )


def test_a_time_out_of_an_abandoned_attempt_is_its_end() -> None:
    change = judged(running(t.ABANDONED, close_at=at(100))).change

    assert change is not None
    assert (change.state, change.unknown_end, change.look_at) == (t.FAILED, True, None)


@pytest.mark.parametrize(
    ("started", "beaten", "silent"),
    [(90, None, 120), (90, 95, 125), (90, 60, 120), (40, 71, 101), (40, 70, 100), (40, None, 70)],
)
def test_silence_counts_from_the_last_sign_of_life_of_this_attempt(
    started: float, beaten: float | None, silent: float
) -> None:
    step = running(
        started_at=at(started),
        heartbeat_at=None if beaten is None else at(beaten),
        options=options(heartbeat=30),
        close_at=None,
    )
    verdict = judged(step)

    if silent > 100:
        assert verdict == Verdict(look_at=at(silent))
    else:
        failure = timed_out("no heartbeat for heartbeat_timeout of 30 s")
        assert verdict == Verdict(
            change=again(130, failures=1, failure=failure.to_text(), unknown_end=True), outcome="timed out"
        )


def test_a_step_completed_from_outside_must_give_signs_of_life_too() -> None:
    step = running(t.EXTERNAL, started_at=at(50), close_at=None, options=options(heartbeat=30))
    change = judged(step).change

    assert change is not None
    assert change.state == t.RETRYING
    assert judged(replace(step, heartbeat_at=at(99))).change is None


def test_a_running_attempt_is_looked_at_when_the_first_of_its_times_is_up() -> None:
    assert judged(running(options=options(heartbeat=30), end_by_at=at(110))).look_at == at(110)
    assert judged(running(options=options(heartbeat=30), end_by_at=at(500))).look_at == at(120)
    assert judged(running(options=options(), end_by_at=at(500))).look_at == at(155)
    assert judged(running(t.EXTERNAL, options=options(), close_at=None)) == Verdict(look_at=None)


# -- outcomes ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "values",
    [
        {"state": t.SUCCEEDED},
        {"state": t.FAILED},
        {"state": t.CANCELLED},
        {"state": t.SCHEDULED, "kind": "timer"},
        {"state": t.SCHEDULED, "kind": "signal"},
    ],
    ids=str,
)
def test_an_outcome_that_nobody_took_in_asks_for_a_turn_with_growing_patience(values: dict[str, Any]) -> None:
    assert judged(running(**values, resends=0)) == Verdict(advance=True, look_at=at(103), resends=1)
    assert judged(running(**values, resends=3)) == Verdict(advance=True, look_at=at(124), resends=4)
