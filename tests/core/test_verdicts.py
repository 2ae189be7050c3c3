"""What becomes of a step row after its body ended or its process died."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from durable_celery.core import transitions as t
from durable_celery.core.failure import Failure, failure_of, lost, timed_out
from durable_celery.core.retry import RetryPolicy
from durable_celery.engine import verdicts
from durable_celery.engine.verdicts import Terms, terms_of
from durable_celery.errors import NonRetryable
from durable_celery.ports import OpenStep, StepChange
from tests.core.driver import BEGIN

LEASE = UUID(int=7)


def at(seconds: float) -> datetime:
    return BEGIN + timedelta(seconds=seconds)


NOW = at(100)


def options(retry: RetryPolicy | None = None, **terms: Any) -> str:
    policy = retry or RetryPolicy(initial_interval=30, maximum_attempts=3, jitter=False)
    return json.dumps({"retry": policy.as_data(), "start_to_close": 60, **terms})


def running(state: str = t.RUNNING, **values: Any) -> OpenStep:
    """A first attempt, claimed ten seconds ago."""
    standard: dict[str, Any] = {
        "id": 5, "instance_id": UUID(int=1), "position": "2", "kind": "step", "name": "core.a", "state": state,
        "options": options(), "attempt": 1, "failures": 0, "deaths": 0, "expiries": 0, "resends": 0, "token": "t",
        "lease_id": LEASE, "pid": 44, "queue": "", "join": "", "group": "", "limited": False, "scheduled_at": at(80),
        "started_at": at(90), "due_at": None, "start_by_at": at(85), "end_by_at": None, "close_at": at(155),
        "heartbeat_at": None, "look_at": at(155), "unknown_end": False,
    }  # fmt: skip
    return OpenStep(**standard | values)


def ended(state: str, **values: Any) -> StepChange:
    """A row that ended at ``NOW`` with its first attempt."""
    standard: dict[str, Any] = {
        "attempt": 1, "failures": 0, "deaths": 0, "expiries": 0, "token": None, "finished_at": NOW, "look_at": at(102),
    }  # fmt: skip
    return StepChange(state=state, **standard | values)


def again(due: float, **values: Any) -> StepChange:
    """A row that is tried again."""
    standard: dict[str, Any] = {
        "attempt": 1, "failures": 0, "deaths": 0, "expiries": 0, "token": None, "due_at": at(due), "look_at": at(due),
    }  # fmt: skip
    return StepChange(state=t.RETRYING, **standard | values)


ERROR = Failure(type="ValueError", types=("ValueError", "Exception"), message="no luck")


def later(step: OpenStep, change: StepChange) -> OpenStep:
    """The row after a change, claimed once more."""
    return replace(
        step, state=t.RUNNING, attempt=change.attempt + 1, failures=change.failures, deaths=change.deaths,
        expiries=change.expiries, failure=change.failure, unknown_end=change.unknown_end, started_at=change.due_at,
    )  # fmt: skip


# -- a body that returned ------------------------------------------------------------------------------------------


def test_a_result_ends_the_row_and_clears_what_belonged_to_the_attempt() -> None:
    step = running(failures=1, deaths=2, expiries=3, attempt=7, failure=ERROR.to_text(), resends=4, due_at=at(1))

    assert verdicts.after_success(step, '"value"', NOW) == ended(
        t.SUCCEEDED, result='"value"', attempt=7, failures=1, deaths=2, expiries=3
    )


def test_the_end_of_an_abandoned_row_is_nobodys_news() -> None:
    assert verdicts.after_success(running(t.ABANDONED), "1", NOW) == ended(t.SUCCEEDED, result="1", look_at=None)


# -- a body that raised --------------------------------------------------------------------------------------------


def test_a_failed_attempt_is_followed_by_another_after_the_delay() -> None:
    assert verdicts.after_failure(running(), ERROR, NOW, 0.5) == again(130, failures=1, failure=ERROR.to_text())


def test_the_queue_time_out_of_the_next_attempt_runs_from_its_due_time() -> None:
    step = running(options=options(schedule_to_start=7))

    assert verdicts.after_failure(step, ERROR, NOW, 0.5).start_by_at == at(137)


def test_o51_no_wait_follows_the_last_attempt_and_earlier_errors_are_listed() -> None:
    step, changes = running(), []
    for number in (1, 2, 3):
        failure = Failure(type="pkg.E", types=("pkg.E",), message=f"x{number}")
        changes.append(verdicts.after_failure(step, failure, NOW, 1.0))
        step = later(step, changes[-1])

    assert [(c.state, c.due_at, c.finished_at, c.failures, c.attempt) for c in changes] == [
        (t.RETRYING, at(130), None, 1, 1),
        (t.RETRYING, at(160), None, 2, 2),
        (t.FAILED, None, NOW, 3, 3),
    ]
    assert Failure.from_text(changes[-1].failure or "") == Failure(
        type="pkg.E", types=("pkg.E",), message="x3", earlier=("E: x1", "E: x2")
    )


def test_the_list_of_earlier_errors_is_bounded_and_keeps_the_latest() -> None:
    step = running(options=options(RetryPolicy(maximum_attempts=0)))
    for number in range(50):
        failure = Failure(type="E", types=("E",), message=str(number))
        step = later(step, verdicts.after_failure(step, failure, NOW, 1.0))

    earlier = Failure.from_text(step.failure or "").earlier
    assert len(earlier) == verdicts.EARLIER
    assert earlier[-1] == "E: 48"


@pytest.mark.parametrize(
    ("failure", "flags"),
    [
        (failure_of(TypeError("x")), {}),
        (failure_of(NonRetryable("x")), {}),
        (failure_of(NonRetryable(ValueError("x"))), {}),
        (ERROR, {"fatal": True}),
    ],
    ids=["programming error", "NonRetryable", "NonRetryable of an error", "fatal"],
)
def test_some_failures_are_final_at_once(failure: Failure, flags: dict[str, bool]) -> None:
    assert verdicts.after_failure(running(), failure, NOW, 0.5, **flags) == ended(
        t.FAILED, failures=1, failure=failure.to_text()
    )


def test_a_failure_without_the_names_of_its_bases_is_matched_by_its_own() -> None:
    step = running(options=options(RetryPolicy(non_retryable="pkg.E")))

    assert verdicts.after_failure(step, Failure(type="pkg.E"), NOW, 0.5).state == t.FAILED


def test_a_step_without_a_policy_has_one_attempt() -> None:
    assert verdicts.after_failure(running(options=""), ERROR, NOW, 0.5).state == t.FAILED


def test_an_abandoned_attempt_gets_no_further_one() -> None:
    assert verdicts.after_failure(running(t.ABANDONED), ERROR, NOW, 0.5) == ended(
        t.FAILED, failures=1, failure=ERROR.to_text(), look_at=None
    )


@pytest.mark.parametrize(("end", "state"), [(131, t.RETRYING), (130, t.FAILED), (120, t.FAILED), (50, t.FAILED)])
def test_no_attempt_is_planned_that_could_not_begin_before_the_deadline_of_all(end: float, state: str) -> None:
    change = verdicts.after_failure(running(end_by_at=at(end)), ERROR, NOW, 1.0)

    assert change.state == state
    assert Failure.from_text(change.failure or "").message == "no luck"


def test_an_attempt_whose_end_is_unknown_stays_so_for_good() -> None:
    first = verdicts.after_failure(running(), timed_out("x"), NOW, 1.0, unknown_end=True)
    second = verdicts.after_failure(later(running(), first), ERROR, NOW, 1.0)

    assert (first.unknown_end, second.unknown_end) == (True, True)


# -- RetryLater and CompleteLater ----------------------------------------------------------------------------------


def test_retry_later_counts_nothing_and_keeps_the_last_error() -> None:
    step = running(failures=2, failure=ERROR.to_text(), options=options(schedule_to_start=7))

    assert verdicts.after_later(step, timedelta(seconds=45), NOW) == again(
        145, failures=2, failure=ERROR.to_text(), start_by_at=at(152)
    )


def test_retry_later_beyond_the_deadline_of_all_is_a_time_out() -> None:
    step = running(end_by_at=at(140), failure=ERROR.to_text())
    text = "RetryLater(45) goes beyond schedule_to_close_timeout"

    assert verdicts.after_later(step, timedelta(seconds=45), NOW) == ended(
        t.FAILED, failure=replace(timed_out(text), earlier=("ValueError: no luck",)).to_text()
    )


def test_retry_later_of_an_abandoned_attempt_is_its_end() -> None:
    change = verdicts.after_later(running(t.ABANDONED), timedelta(seconds=1), NOW)

    assert change == ended(t.CANCELLED, look_at=None)
    assert change.state in t.STEP[t.ABANDONED]


def test_complete_later_frees_the_process_and_keeps_the_token() -> None:
    assert verdicts.after_external(running(), NOW) == StepChange(
        state=t.EXTERNAL, attempt=1, failures=0, deaths=0, expiries=0, token="t", start_by_at=at(85)
    )


@pytest.mark.parametrize(
    ("terms", "end", "look"),
    [({}, 500, 500), ({"heartbeat": 30}, None, 130), ({"heartbeat": 30}, 500, 130), ({"heartbeat": 30}, 110, 110)],
)
def test_complete_later_leaves_the_other_time_outs_in_force(
    terms: dict[str, Any], end: float | None, look: float
) -> None:
    step = running(options=options(**terms), end_by_at=None if end is None else at(end))

    assert verdicts.after_external(step, NOW).look_at == at(look)


def test_complete_later_of_an_abandoned_attempt_ends_unknown() -> None:
    change = verdicts.after_external(running(t.ABANDONED), NOW)

    assert change == ended(t.CANCELLED, unknown_end=True, look_at=None)
    assert change.state in t.STEP[t.ABANDONED]


def test_an_existing_task_that_retries_itself_counts_and_brings_new_arguments() -> None:
    change = verdicts.after_own_retry(
        running(end_by_at=at(110)), ERROR, timedelta(seconds=20), NOW, args="[[2],{}]", queue="slow"
    )

    assert change == again(120, failures=1, failure=ERROR.to_text(), args="[[2],{}]", queue="slow", look_at=at(110))
    assert verdicts.after_own_retry(running(t.ABANDONED), ERROR, timedelta(0), NOW, args=None, queue=None) == ended(
        t.FAILED, failures=1, failure=ERROR.to_text(), look_at=None
    )


# -- a process that is gone ----------------------------------------------------------------------------------------


def loss(step: OpenStep, *, proven: bool = True, now: datetime = NOW) -> StepChange:
    return verdicts.after_loss(step, now, "worker w is gone", proven=proven, max_deaths=3, max_expiries=10)


def test_a_proven_death_is_followed_by_another_attempt_at_once_and_counted_apart() -> None:
    failure = lost("worker w is gone").to_text()

    assert loss(running()) == again(100, deaths=1, failure=failure, unknown_end=True)
    assert loss(running(), proven=False) == again(100, expiries=1, failure=failure, unknown_end=True)


def starts_until_the_end(*, proven: bool) -> tuple[int, StepChange]:
    step = running()
    for starts in range(1, 100):
        change = loss(step, proven=proven, now=at(101))
        if change.state == t.FAILED:
            return starts, change
        step = later(step, change)
    raise AssertionError


def test_o05_deaths_have_a_cap() -> None:
    starts, change = starts_until_the_end(proven=True)
    failure = Failure.from_text(change.failure or "")

    assert (starts, change.deaths, change.failures, change.unknown_end) == (3, 3, 0, True)
    assert failure.lost
    assert failure.message == "worker w is gone, 3 deaths and 0 expired leases so far"
    assert failure.earlier == ("Lost: worker w is gone", "Lost: worker w is gone")


def test_leases_that_merely_ran_out_have_a_cap_of_their_own() -> None:
    starts, change = starts_until_the_end(proven=False)

    assert (starts, change.deaths, change.expiries) == (10, 0, 10)


def test_a_step_that_must_not_run_twice_fails_with_its_first_loss() -> None:
    for proven in (True, False):
        change = loss(running(options=options(on_lost="fail")), proven=proven)

        assert change == ended(
            t.FAILED, failure=lost("worker w is gone").to_text(), unknown_end=True, deaths=int(proven),
            expiries=int(not proven),
        )  # fmt: skip


def test_a_lost_abandoned_attempt_ends_unknown() -> None:
    assert loss(running(t.ABANDONED)) == ended(
        t.FAILED, failure=lost("worker w is gone").to_text(), unknown_end=True, deaths=1, look_at=None
    )


@pytest.mark.parametrize(("now", "deaths", "failures"), [(149.9, 1, 0), (150, 0, 1), (200, 0, 1)])
def test_a_process_killed_past_its_deadline_is_a_time_out(now: float, deaths: int, failures: int) -> None:
    change = loss(running(), now=at(now))

    assert (change.state, change.deaths, change.failures, change.unknown_end) == (t.RETRYING, deaths, failures, True)
    assert Failure.from_text(change.failure or "").timed_out is bool(failures)
    assert change.due_at == at(now + (30 if failures else 0))


def test_a_lease_that_ran_out_past_the_deadline_is_no_proof_of_a_time_out() -> None:
    assert loss(running(), proven=False, now=at(200)).expiries == 1


def test_a_loss_after_the_deadline_of_all_is_the_end() -> None:
    change = loss(running(end_by_at=at(100)))

    assert (change.state, change.deaths, change.unknown_end) == (t.FAILED, 1, True)
    assert Failure.from_text(change.failure or "").message == "not finished within schedule_to_close_timeout, 1 attempt"


# -- terms ---------------------------------------------------------------------------------------------------------


def test_terms_come_from_the_row() -> None:
    text = options(schedule_to_start=1, schedule_to_close=2, heartbeat=3, on_lost="fail", of_a_newer_release=True)

    assert terms_of(text) == Terms(
        retry=RetryPolicy(initial_interval=30, maximum_attempts=3, jitter=False),
        start_to_close=60,
        schedule_to_start=1,
        schedule_to_close=2,
        heartbeat=3,
        on_lost="fail",
    )
    assert terms_of("") == Terms(retry=RetryPolicy(maximum_attempts=1))


@pytest.mark.parametrize("state", [t.RUNNING, t.EXTERNAL, t.ABANDONED])
def test_every_end_is_an_edge_of_the_table(state: str) -> None:
    step = running(state)
    changes = [
        verdicts.after_success(step, "1", NOW),
        verdicts.after_failure(step, ERROR, NOW, 0.5),
        verdicts.after_failure(step, ERROR, NOW, 0.5, fatal=True),
        loss(step),
    ]
    if state != t.EXTERNAL:
        changes += [verdicts.after_external(step, NOW), verdicts.after_later(step, timedelta(0), NOW)]

    assert {change.state for change in changes} <= set(t.STEP[state])
