"""O-18: a join that fails says so at the yield, after every member has ended, and shows what the others brought."""

from __future__ import annotations

from typing import Any

import pytest

from durable_celery import RetryPolicy, StepFailed, Workflow, current_workflow, gather, step, workflow
from tests.effects import effects
from tests.project.testapp.case_joins import compensating as compensating_process
from tests.pump import Pump

ran: list[Any] = []


@step(retry=None)
def boom(what: str = "boom") -> None:
    ran.append(what)
    raise RuntimeError(what)


@step(retry=RetryPolicy(maximum_attempts=3, initial_interval=5, jitter=False))
def slow_ok(what: str = "slow") -> str:
    ran.append(what)
    if ran.count(what) < 3:
        raise OSError("not yet")
    return what


@step
def ok(what: str) -> str:
    ran.append(what)
    return what


@step
def compensate(results: list[Any], errors: list[str | None]) -> str:
    ran.append(("compensate", results, errors))
    return "made good"


@workflow
def compensating() -> Workflow[str]:
    try:
        yield from gather(boom(), slow_ok())
    except StepFailed as error:
        if not current_workflow().is_replaying:
            ran.append("caught")
        return (yield from compensate(list(error.results), [_text(failed) for failed in error.errors]))
    return "nothing failed"


@workflow
def several() -> Workflow[tuple[str, str, Any, Any]]:
    try:
        yield from gather(ok("a"), boom("first"), ok("b"), boom("second"))
    except StepFailed as error:
        return error.position, error.message, list(error.results), [_text(failed) for failed in error.errors]
    return "", "", [], []


@workflow
def limited() -> Workflow[tuple[Any, Any]]:
    try:
        yield from gather(ok("a"), boom(), *(ok(f"never {number}") for number in range(4)), limit=1)
    except StepFailed as error:
        return list(error.results), [_text(failed) for failed in error.errors]
    return [], []


def _text(error: StepFailed | None) -> str | None:
    return error.message if error is not None and not error.cancelled else None


@pytest.fixture(autouse=True)
def _clean() -> None:
    ran.clear()


def test_o18_the_error_comes_at_the_yield_after_all_members_ended_and_can_be_caught(pump: Pump) -> None:
    handle = compensating.start()
    pump.drain()
    assert ran == ["boom", "slow"]  # one has failed for good, the other is tried again
    assert handle.status == "WAITING"
    pump.finish()
    assert ran == ["boom", "slow", "slow", "slow", "caught", ("compensate", [None, "slow"], ["boom", None])]
    assert handle.status == "COMPLETED"
    assert handle.result(timeout=0) == "made good"


def test_o18_it_is_the_error_of_the_lowest_failed_position_with_all_results_and_errors(pump: Pump) -> None:
    handle = several.start()
    pump.choose = lambda ready: len(ready) - 1  # the second failure comes first
    pump.finish()
    assert ran.index("second") < ran.index("first")
    position, message, results, errors = handle.result(timeout=0)
    assert (position, message) == ("1.1", "first")
    assert results == ["a", None, "b", None]
    assert errors == [None, "first", None, "second"]


def test_o18_with_a_limit_no_member_starts_after_a_failure(pump: Pump) -> None:
    handle = limited.start()
    pump.finish()
    assert ran == ["a", "boom"]
    results, errors = handle.result(timeout=0)
    assert results == ["a", *[None] * 5]
    assert errors == [None, "boom", *[None] * 4]
    assert handle.status == "COMPLETED"
    states = [entry.state for entry in handle.history() if entry.kind == "step"]
    assert states == ["SUCCEEDED", "FAILED", *["CANCELLED"] * 4]
    assert all(entry.attempts == 0 for entry in handle.history() if entry.state == "CANCELLED")


@pytest.mark.prefork
@pytest.mark.django_db(transaction=True)
def test_o18_real_workers_make_good_with_the_value_of_the_other_member(start_worker: Any) -> None:
    handle = compensating_process.start("o18")
    start_worker()
    assert handle.result(timeout=30) == "made good after ['slow']"
    assert effects("o18") == {"boom": 1, "slow": 1, "made good after ['slow']": 1}
