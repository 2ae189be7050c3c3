"""What the tests of map_step share."""

from __future__ import annotations

from typing import Any

import pytest

from durable_celery import (
    Workflow,
    map_step,
    step,
    workflow,
)

RAN: list[Any] = []


@step(name="maps.double", retry=1)
def double(number: int) -> int:
    RAN.append(number)
    if number < 0:
        raise ValueError(f"no luck with {number}")
    return 2 * number


@workflow(name="maps.doubling")
def doubling(numbers: list[int], limit: int | None = None, tolerate: int = 0) -> Workflow[Any]:
    return (yield from map_step(double, numbers, limit=limit, tolerate=tolerate))


@pytest.fixture(autouse=True)
def _nothing_ran():
    RAN.clear()


def states(handle: Any) -> dict[str, str]:
    return {entry.position: entry.state for entry in handle.history(of="1")}
