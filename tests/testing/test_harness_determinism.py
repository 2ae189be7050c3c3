"""The kit: bodies that are not deterministic are found."""

from __future__ import annotations

import time
from datetime import timedelta

import pytest

from durable_celery import (
    NonDeterminism,
    RetryPolicy,
    Workflow,
    gather,
    now,
    sleep,
    step,
    workflow,
)
from durable_celery.testing import Harness
from tests.testing.harness_workflows import (
    CarrierDown,
    charge,
    ship,
)

ORDER = ["a", "b"]


@workflow(name="kit.moody")
def moody() -> Workflow[None]:
    yield from sleep(60)
    ORDER.reverse()
    for number, _ in enumerate(ORDER):
        yield from charge(number, amount=ord(ORDER[number]))


def test_a_body_that_decides_otherwise_is_found_with_position_and_line(durable: Harness) -> None:
    with pytest.raises(NonDeterminism, match="position 2 ") as raised:
        durable.run(moody)
    assert "amount" in str(raised.value)
    assert "moody" in str(raised.value)
    assert "test_harness_determinism.py" in str(raised.value)


@pytest.mark.durable(check=False)
def test_the_check_can_be_left_out(durable: Harness) -> None:
    assert durable.run(moody).status == "COMPLETED"


def test_names_times_and_results_are_compared(durable: Harness) -> None:
    @workflow(name="kit.clocked")
    def clocked() -> Workflow[None]:
        yield from sleep(time.monotonic())

    @workflow(name="kit.returned")
    def returned() -> Workflow[float]:
        yield from sleep(1)
        return time.monotonic()

    with pytest.raises(NonDeterminism, match="timer with due_at"):
        durable.run(clocked)
    with pytest.raises(NonDeterminism, match="COMPLETED with"):
        durable.run(returned)


@workflow(name="kit.plain")
def plain(numbers: list[int]) -> Workflow[tuple[list[int], tuple[str, ...]]]:
    numbers.append(len(numbers))
    parcels = yield from gather(*(ship(number) for number in numbers))
    began = now()
    yield from sleep(days=1)
    assert now() - began >= timedelta(days=1)
    return numbers, parcels


def test_a_body_may_change_what_it_was_given(durable: Harness) -> None:
    assert durable.run(plain, [5]).result == ([5, 1], ("parcel 5", "parcel 1"))


def test_policies_are_the_steps_own(durable: Harness) -> None:
    @step(name="kit.once", retry=RetryPolicy(maximum_attempts=2, initial_interval=300, jitter=False))
    def once() -> None:
        raise CarrierDown

    @workflow(name="kit.twice")
    def twice() -> Workflow[None]:
        yield from once()

    began = durable.now
    run = durable.run(twice)
    assert (run.status, run.history[0].attempts) == ("FAILED", 2)
    assert durable.now - began == timedelta(minutes=5)
