"""O-28: attempts are numbers of their own, so a retried step leaves the positions after it where they are."""

from __future__ import annotations

from typing import Any

import pytest

from django_app.models import StepResult
from durable_celery import RetryPolicy, Workflow, current_step, gather, step, workflow
from tests.pump import Pump

ran: list[str] = []


@step(retry=RetryPolicy(maximum_attempts=3, initial_interval=1, jitter=False))
def f(failures: int) -> str:
    ran.append("f")
    if current_step().attempt <= failures:
        raise RuntimeError("not yet")
    return "f"


@step(retry=RetryPolicy(maximum_attempts=3, initial_interval=1, jitter=False))
def g(number: int, failures: int) -> int:
    ran.append(f"g{number}")
    if current_step().attempt <= failures:
        raise RuntimeError("not yet")
    return number


@step
def last(x: str, ys: tuple[int, ...]) -> str:
    ran.append("last")
    return f"{x}{sum(ys)}"


@workflow
def retrying_then_spreading(failures: int, of_members: int) -> Workflow[str]:
    x = yield from f(failures)
    ys = yield from gather(*(g(number, of_members) for number in range(5)))
    return (yield from last(x, ys))


@pytest.mark.parametrize(("failures", "of_members"), [(0, 0), (1, 0), (2, 0), (1, 1)])
def test_o28_positions_do_not_depend_on_attempts(pump: Pump, failures: int, of_members: int) -> None:
    ran.clear()
    handle = retrying_then_spreading.start(failures, of_members)
    pump.finish()
    assert handle.status == "COMPLETED"
    assert handle.result(timeout=0) == "f10"
    history = handle.history()
    assert [entry.position for entry in history] == ["1", "2", "2.0", "2.1", "2.2", "2.3", "2.4", "3"]
    assert [entry.attempts for entry in history if entry.kind == "step"] == [
        failures + 1, *[of_members + 1] * 5, 1,
    ]  # fmt: skip
    assert ran.count("f") == failures + 1
    assert [ran.count(f"g{number}") for number in range(5)] == [of_members + 1] * 5
    assert ran.count("last") == 1
    assert one_row_a_position(handle)


def test_o28_the_order_members_end_in_moves_no_position(pump: Pump) -> None:
    pump.choose = lambda ready: len(ready) - 1
    handle = retrying_then_spreading.start(1, 0)
    pump.finish()
    assert handle.result(timeout=0) == "f10"
    by_position = {entry.position: entry.result for entry in handle.history()}
    assert [by_position[f"2.{number}"] for number in range(5)] == list(range(5))


@pytest.mark.parametrize("point", ["record.after", "turn.before_commit", "turn.in_transaction", "turn.after_commit"])
def test_o28_nor_does_a_worker_that_dies_after_the_retry(pump: Pump, point: str) -> None:
    handle = retrying_then_spreading.start(1, 0)
    pump.drain()
    pump.kill_at(point)
    pump.finish()
    assert handle.result(timeout=0) == "f10"
    assert one_row_a_position(handle)


def one_row_a_position(handle: Any) -> bool:
    positions = list(StepResult.objects.filter(instance_id=handle.id).values_list("position", flat=True))
    return len(positions) == len(set(positions)) == 8
