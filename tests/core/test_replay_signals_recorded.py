"""Waits whose terms the code changes: what was recorded stays in force. And wrong waits."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from durable_celery import Signal, SignalTimeout, UsageError, Workflow, sleep
from tests.core.driver import BEGIN, Driver, a

go: Signal[Any] = Signal("go")


# -- what the code says now, and what was recorded -----------------------------------------------------------------


class Changing:
    """A wait whose terms the code changes between turns."""

    def __init__(self, **options: Any) -> None:
        self.options = options

    def __call__(self) -> Workflow[Any]:
        try:
            value = yield from go.wait(**self.options)
        except SignalTimeout as error:
            value = str(error)
        yield from a()
        return value


def changing(now: dict[str, Any], later: dict[str, Any], *, between_turns: int) -> Driver:
    change = Changing(**now)

    def body() -> Workflow[Any]:
        return (yield from change())

    run = Driver(body)
    for turn in range(3):
        if turn == between_turns:
            change.options = later
        run.turn()
        run.pass_time(30)
        run.end(run.open_steps(), lambda entry: None)
    return run


def test_a_default_recorded_at_the_time_out_stays_in_force() -> None:
    run = changing({"timeout": 5, "default": "old"}, {"timeout": 5, "default": "new"}, between_turns=2)

    assert run.value == "old"


def test_an_error_recorded_at_the_time_out_stays_in_force() -> None:
    run = changing({"timeout": 5}, {"timeout": 9, "default": "new"}, between_turns=2)

    assert run.value == "no signal 'go' came within 5 s"


def test_a_default_recorded_at_the_time_out_outlives_its_removal() -> None:
    run = changing({"timeout": 5, "default": "old"}, {"timeout": 5}, between_turns=2)

    assert run.value == "old"


def test_the_due_time_recorded_when_the_wait_began_stays_in_force() -> None:
    run = changing({"timeout": 5, "default": "old"}, {"timeout": 500, "default": "new"}, between_turns=1)

    assert run.value == "new"
    assert run.entries["1"].due_at == BEGIN + timedelta(seconds=5)


def test_a_wait_that_lost_its_time_out_still_ends_at_the_recorded_one() -> None:
    run = changing({"timeout": 5}, {}, between_turns=1)

    assert run.value == "no signal 'go' was there"


# -- bad waits -----------------------------------------------------------------------------------------------------


def test_a_default_without_a_time_out_is_refused() -> None:
    def body() -> Workflow[None]:
        yield from go.wait(default=1)

    assert "default= without timeout= is never used" in Driver(body).turn().waiting


@pytest.mark.parametrize("timeout", [-1, float("nan"), "3", True])
def test_an_odd_time_out_is_refused(timeout: Any) -> None:
    def body() -> Workflow[None]:
        yield from go.wait(timeout=timeout)

    assert "UsageError" in Driver(body).turn().failure.types[1]  # type: ignore[union-attr]


def test_a_body_may_handle_its_own_wrong_use() -> None:
    def body() -> Workflow[str]:
        try:
            yield from sleep(float("nan"))
        except UsageError as error:
            return type(error).__name__
        return ""

    assert Driver(body).turn().value == "BadValue"
