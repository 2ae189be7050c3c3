"""O-16: branches that fail side by side keep their own count of attempts, however often their instance is woken."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from durable_celery import RetryPolicy, StepFailed, Workflow, gather, step, workflow
from tests.effects import effects
from tests.project.testapp.case_joins import all_failing
from tests.pump import Pump

started: Counter[str] = Counter()


@step(retry=RetryPolicy(maximum_attempts=3, initial_interval=1, backoff_coefficient=1.0, jitter=False))
def fails(branch: str) -> None:
    started[branch] += 1
    raise RuntimeError(branch)


@workflow
def branching() -> Workflow[list[int]]:
    try:
        yield from gather(fails("a"), fails("b"), fails("c"))
    except StepFailed as error:
        return [failed.attempts for failed in error.errors]
    return []


@pytest.fixture(autouse=True)
def _clean() -> None:
    started.clear()


def test_o16_each_branch_starts_three_times(pump: Pump) -> None:
    handle = branching.start()
    pump.finish()
    assert started == {"a": 3, "b": 3, "c": 3}
    assert started.total() == 9
    assert handle.result(timeout=0) == [3, 3, 3]
    assert {(entry.state, entry.attempts) for entry in handle.history() if entry.kind == "step"} == {("FAILED", 3)}


def test_o16_waking_the_instance_sends_no_step_that_has_an_open_attempt(pump: Pump) -> None:
    handle = branching.start()
    pump.deliver(pump.queue[0])
    for attempt in (1, 2, 3):
        before = pump.tasks()[fails.name]
        for _ in range(5):
            pump.advance(handle._row().id)
        while turn := next((hint for hint in pump.ready() if hint.step is None), None):
            pump.deliver(turn)
        assert pump.tasks()[fails.name] == before == 3 * attempt  # one message for each attempt
        pump.drain()
        assert started.total() == 3 * attempt
        pump.advance_time(0.999)
        assert started.total() == 3 * attempt
        pump.now = max(hint.due_at for hint in pump.queue) if pump.queue else pump.now
    assert handle.result(timeout=0) == [3, 3, 3]
    assert pump.tasks()[fails.name] == 9


def test_o16_a_turn_while_an_attempt_runs_starts_no_second_one(pump: Pump) -> None:
    handle = branching.start()
    pump.fate = lambda hint: (0.0, 0.0)
    pump.finish()
    assert started == {"a": 3, "b": 3, "c": 3}
    assert handle.result(timeout=0) == [3, 3, 3]


@pytest.mark.prefork
@pytest.mark.django_db(transaction=True)
def test_o16_real_workers_start_each_branch_three_times(start_worker: Any) -> None:
    handle = all_failing.start("o16")
    start_worker()
    assert handle.result(timeout=30) == ["a", "b", "c"]
    assert effects("o16") == {"a": 3, "b": 3, "c": 3}
