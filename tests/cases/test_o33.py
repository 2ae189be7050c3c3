"""O-33: a cancel that races the completion says which of them won, and the final state agrees."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from django.db import connection

from durable_celery import Workflow, WorkflowCancelled, step, workflow
from durable_celery import faults as points
from tests.pump import Hint, Pump

SOME, ALL = 120, 500
POINTS = ["claim.before", "claim.after_commit", "body.before", "body.after", "record.before", "record.after",
          "turn.before_body", "turn.before_commit"]  # fmt: skip
TOO_LATE = ["turn.after_commit"]


@step
def last(number: int) -> int:
    return number


@workflow
def ending() -> Workflow[int]:
    return (yield from last(7))


def begun(pump: Pump) -> tuple[Any, Hint]:
    """An instance whose last step is in the queue."""
    handle = ending.start()
    pump.deliver(pump.queue[0])
    (message,) = pump.queue
    return handle, message


def assert_agrees(handle: Any, answer: str) -> None:
    assert answer in ("requested", "COMPLETED")
    assert handle.status == ("CANCELLED" if answer == "requested" else answer)
    if answer == "requested":
        with pytest.raises(WorkflowCancelled):
            handle.result(timeout=0)
    else:
        assert handle.result(timeout=0) == 7
    assert handle.cancel() == handle.status


@pytest.mark.parametrize("point", POINTS + TOO_LATE)
def test_o33_a_cancel_between_any_two_statements_tells_the_truth(pump: Pump, point: str) -> None:
    handle, message = begun(pump)
    answers: list[str] = []

    def reach(name: str) -> None:
        if name == point and not answers:
            answers.append(handle.cancel())

    points.set_hook(reach)
    pump.deliver(message)
    points.set_hook(None)
    pump.finish()
    assert answers == ["COMPLETED" if point in TOO_LATE else "requested"]
    assert_agrees(handle, answers[0])


@pytest.mark.parametrize("times", [SOME, pytest.param(ALL, marks=pytest.mark.nightly)])
def test_o33_a_cancel_at_any_offset_from_the_last_commit_tells_the_truth(pump: Pump, times: int) -> None:
    dice = random.Random(33)
    took = 0.02
    seen: Counter[str] = Counter()
    with ThreadPoolExecutor(1) as worker, ThreadPoolExecutor(1) as person:
        for number in range(times):
            handle, message = begun(pump)
            started_at = time.perf_counter() + 0.001
            late = started_at + dice.uniform(0, 1.3) * took
            deliver = timed(lambda message=message: pump.deliver(message))
            # One at least comes in time and one too late, however slow this machine is.
            if number == 0:
                asked = person.submit(handle.cancel)
                asked.result(30)
            done = worker.submit(at, started_at, deliver)
            if number == 1:
                done.result(30)
            if number > 0:
                asked = person.submit(at, late, handle.cancel)
            took = 0.8 * took + 0.2 * done.result(30)
            answer = asked.result(30)
            pump.finish()
            assert_agrees(handle, answer)
            seen[answer] += 1
        for pool in (worker, person):
            pool.submit(lambda: connection.close()).result(30)
    assert seen.total() == times
    assert set(seen) == {"requested", "COMPLETED"}, "the offsets never met the last commit"
    print(f"{times} cancels around the last commit: {dict(seen)}")


def at(moment: float, act: Callable[[], Any]) -> Any:
    connection.ensure_connection()
    # A loop that spins would hold the interpreter and slow down the very work it waits beside.
    time.sleep(max(0.0, moment - time.perf_counter()))
    return act()


def timed(act: Callable[[], Any]) -> Callable[[], float]:
    def run() -> float:
        began = time.perf_counter()
        act()
        return time.perf_counter() - began

    return run
