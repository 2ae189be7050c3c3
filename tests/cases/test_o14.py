"""O-14: a fan-in waits for a member that is between two attempts; it never goes on with an error or a stand-in."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from durable_celery import RetryPolicy, StepFailed, Workflow, current_step, gather, step, workflow
from tests.processes import eventually
from tests.project.testapp.case_joins import joined
from tests.pump import Pump

resumed: list[Any] = []
started: list[str] = []


@step
def ok() -> int:
    started.append("ok")
    return 1


@step(retry=RetryPolicy(maximum_attempts=4, initial_interval=1, backoff_coefficient=1.0, jitter=False))
def flaky() -> int:
    started.append("flaky")
    if current_step().attempt <= 2:
        raise RuntimeError(f"attempt {current_step().attempt}")
    return 2


@workflow
def fan_in(flaky_first: bool) -> Workflow[list[int]]:
    members = [flaky(), ok()] if flaky_first else [ok(), flaky()]
    try:
        found = yield from gather(*members)
    except StepFailed as error:
        resumed.append(error)
        raise
    resumed.append(found)
    return list(found)


@pytest.fixture(autouse=True)
def _clean() -> None:
    resumed.clear()
    started.clear()


@pytest.mark.parametrize(("flaky_first", "wanted"), [(False, (1, 2)), (True, (2, 1))])
def test_o14_the_body_goes_on_once_after_the_third_attempt_with_the_values_in_order(
    pump: Pump, flaky_first: bool, wanted: tuple[int, int]
) -> None:
    handle = fan_in.start(flaky_first)
    for attempt in (1, 2):
        pump.drain()
        assert sorted(started) == ["flaky"] * attempt + ["ok"]
        assert resumed == []
        states = {entry.name.rpartition(".")[2]: entry.state for entry in handle.history() if entry.kind == "step"}
        assert states == {"ok": "SUCCEEDED", "flaky": "RETRYING"}
        assert handle.status == "WAITING"
        for _ in range(3):  # a turn for nothing changes nothing
            pump.advance(handle._row().id)
        pump.drain()
        assert resumed == []
        pump.advance_time(1)
    assert resumed == [wanted]
    assert handle.result(timeout=0) == list(wanted)
    assert handle.status == "COMPLETED"
    assert sorted(started) == ["flaky"] * 3 + ["ok"]
    pump.finish()
    assert resumed == [wanted]


def test_o14_replayed_while_a_member_retries_the_body_stays_where_it_is(pump: Pump) -> None:
    handle = fan_in.start(False)
    pump.kill_at("record.after", 3)
    pump.kill_at("turn.before_commit", 1)
    pump.finish()
    assert handle.result(timeout=0) == [1, 2]
    assert {value if isinstance(value, tuple) else type(value) for value in resumed} == {(1, 2)}
    assert sorted(started) == ["flaky"] * 3 + ["ok"]


@pytest.mark.prefork
@pytest.mark.django_db(transaction=True)
def test_o14_real_workers_wait_for_the_third_attempt(start_worker: Any) -> None:
    handle = joined.start("o14", 2)
    start_worker()
    eventually(lambda: any(entry.state == "RETRYING" for entry in handle.history()), "a first failure")
    assert handle.status in ("RUNNING", "WAITING")
    assert handle.result(timeout=30) == ["quiet", 3]
    row = next(entry for entry in handle.history() if entry.name.endswith("flaky"))
    assert row.attempts == 3
    finished_at = handle._row().finished_at
    assert finished_at is not None
    assert row.finished_at is not None
    later = finished_at - row.finished_at
    assert later >= timedelta(0)
