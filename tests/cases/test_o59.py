"""O-59: a time without a zone is refused where it is yielded; one with a zone is kept as the instant it names."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from datetime import date, datetime, timedelta, timezone
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from django_app.models import StepResult
from durable_celery import UsageError, Workflow, sleep, sleep_until, step, workflow
from tests.pump import BEGIN, Pump

REFUSED: dict[str, Callable[[], Any]] = {
    "naive": lambda: sleep_until(datetime(2026, 1, 1, 12)),  # noqa: DTZ001 - the very mistake
    "date": lambda: sleep_until(date(2026, 1, 1)),
    "text": lambda: sleep_until("2026-01-01T12:00:00Z"),
    "none": lambda: sleep_until(None),
    "nan": lambda: sleep(float("nan")),
    "infinity": lambda: sleep(float("inf")),
    "timedelta.max": lambda: sleep(timedelta.max),
    "days": lambda: sleep(days=10**9),
    "too big for a float": lambda: sleep(10**400),
}
AT_ONCE: dict[str, Callable[[], Any]] = {
    "zero": lambda: sleep(0),
    "negative": lambda: sleep(-5),
    "negative timedelta": lambda: sleep(timedelta(days=-3)),
    "past": lambda: sleep_until(BEGIN - timedelta(days=1)),
    "long past": lambda: sleep_until(datetime(1, 1, 1, tzinfo=timezone.utc)),
}
caught: list[UsageError] = []


@step
def before() -> None:
    pass


@workflow
def sleeping(how: str) -> Workflow[str]:
    yield from before()
    yield from (REFUSED | AT_ONCE)[how]()
    return "awake"


@workflow
def catching(how: str) -> Workflow[str]:
    try:
        yield from REFUSED[how]()
    except UsageError as error:
        caught.append(error)
        return "caught"
    return "awake"


@workflow
def sleeping_until(when: datetime) -> Workflow[str]:
    yield from sleep_until(when)
    return "awake"


@pytest.mark.parametrize("how", REFUSED)
def test_o59_no_instant_is_a_usage_error_at_the_line_of_the_yield_and_blocks(pump: Pump, how: str) -> None:
    handle = sleeping.start(how)
    pump.finish()
    assert handle.status == "BLOCKED"
    lines, first = inspect.getsourcelines(sleeping.body)
    line = first + next(number for number, text in enumerate(lines) if "REFUSED | AT_ONCE" in text)
    assert "test_o59.py" in handle.waiting_for
    assert str(line) in handle.waiting_for
    assert "sleep" in handle.waiting_for
    assert [entry.kind for entry in handle.history()] == ["step"]


@pytest.mark.parametrize("how", REFUSED)
def test_o59_the_body_may_catch_it(pump: Pump, how: str) -> None:
    caught.clear()
    handle = catching.start(how)
    pump.finish()
    assert handle.result(timeout=0) == "caught"
    assert isinstance(caught[-1], ValueError)


def test_o59_a_naive_time_is_told_which_zone_to_give(pump: Pump) -> None:
    handle = sleeping.start("naive")
    pump.finish()
    assert "naive" in handle.waiting_for
    assert "timezone.utc" in handle.waiting_for


@pytest.mark.parametrize("how", AT_ONCE)
def test_o59_zero_less_and_the_past_are_over_at_the_next_tick(pump: Pump, how: str) -> None:
    handle = sleeping.start(how)
    pump.drain()
    pump.advance_time(seconds=1)
    assert handle.result(timeout=0) == "awake"
    assert "tick" in (sleep.__doc__ or "")
    assert "tick" in (sleep_until.__doc__ or "")


@pytest.mark.parametrize(
    "when",
    [
        datetime(2026, 11, 29, 20, 0, tzinfo=ZoneInfo("Asia/Tokyo")),
        datetime(2026, 11, 29, 14, 30, tzinfo=ZoneInfo("Europe/Berlin")),
        datetime(2026, 11, 29, 18, 15, tzinfo=timezone(timedelta(hours=5, minutes=45))),
        datetime(2026, 11, 29, 13, 0, 0, 123456, tzinfo=timezone.utc),
    ],
)
def test_o59_a_time_with_a_zone_is_stored_as_its_utc_instant(pump: Pump, when: datetime) -> None:
    handle = sleeping_until.start(when)
    pump.drain()
    instant = when.astimezone(timezone.utc)
    row = StepResult.objects.filter(instance_id=handle.id).first()
    if row is not None:
        assert row.due_at == instant
        assert row.due_at.utcoffset() == timedelta(0)
    if instant > pump.now:
        pump.advance_time((instant - pump.now).total_seconds() - 1)
        assert handle.status == "WAITING"
        pump.advance_time(seconds=1)
    else:
        pump.advance_time(seconds=1)
    assert handle.result(timeout=0) == "awake"
