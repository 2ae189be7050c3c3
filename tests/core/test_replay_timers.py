"""Sleeps: due times fixed when first recorded, the time of a turn, odd values."""

from __future__ import annotations

from datetime import date, datetime, timedelta, timezone
from typing import Any

import pytest

from durable_celery import Workflow, gather, now, sleep, sleep_until
from durable_celery.core.decision import Closing, Decision
from tests.core.driver import BEGIN, Driver, a, b


def test_o57_the_due_time_is_fixed_when_the_sleep_is_first_recorded() -> None:
    def body() -> Workflow[None]:
        yield from a()
        yield from sleep(10)

    run = Driver(body)
    run.turn()
    run.succeed("1")
    run.turn()
    due = run.entries["2"].due_at
    for seconds in (3, 3, 3.9):
        run.pass_time(seconds)
        assert not run.has_news()
        assert run.decide() == Decision(state="WAITING", waiting=f"sleep at 2 until {due:%Y-%m-%d %H:%M:%S} UTC")

    assert due == BEGIN + timedelta(seconds=11)
    run.pass_time(0.1)
    assert run.turn() == Decision(
        state="COMPLETED", closings=(Closing(position="2", state="SUCCEEDED", at=due),), taken_entries={2: 0}
    )


def test_a_sleep_that_the_code_changes_keeps_its_due_time() -> None:
    seconds = 10

    def body() -> Workflow[None]:
        yield from sleep(seconds)

    run = Driver(body)
    run.turn()
    seconds = 1000
    run.pass_time(10)

    assert run.turn().state == "COMPLETED"


def test_o58_a_relative_wake_up_is_the_same_in_every_replay() -> None:
    seen = []

    def body() -> Workflow[datetime]:
        begun = now()
        yield from a()
        later = now()
        seen.append((begun, later))
        yield from sleep_until(begun + timedelta(seconds=60))
        return now()

    run = Driver(body)
    run.turn()
    run.pass_time(29)
    run.succeed("1")
    run.turn()
    due = run.entries["2"].due_at
    run.pass_time(60)
    run.turn()

    assert due == BEGIN + timedelta(seconds=60)
    assert set(seen) == {(BEGIN, BEGIN + timedelta(seconds=30))}
    assert run.value == BEGIN + timedelta(seconds=90)
    assert all(moment.utcoffset() == timedelta(0) for pair in seen for moment in pair)


def test_o58_now_never_goes_backwards_even_if_a_clock_does() -> None:
    def body() -> Workflow[list[datetime]]:
        seen = [now()]
        for _ in range(4):
            yield from a()
            seen.append(now())
        return seen

    run = Driver(body)
    run.turn()
    for position, moved in enumerate((5, -100, 20, 300), start=1):
        run.succeed(str(position))
        run.now = BEGIN + timedelta(seconds=moved)
        run.turn()

    assert [(moment - BEGIN).total_seconds() for moment in run.value] == [0, 5, 5, 20, 300]


def test_now_is_one_time_within_a_turn_whatever_it_takes_in() -> None:
    def body() -> Workflow[list[datetime]]:
        seen = []
        for _ in range(3):
            yield from gather(a(), b())
            seen.append(now())
        return seen

    run = Driver(body)
    run.turn()
    while run.open:
        run.end(run.open_steps(), lambda entry: None)
        run.turn()

    assert [(moment - BEGIN).total_seconds() for moment in run.value] == [2, 4, 6]


def test_timers_fire_in_the_order_of_their_due_times() -> None:
    def body() -> Workflow[list[str]]:
        yield from gather(sleep(30), sleep(10), sleep(20))
        return ["done"]

    run = Driver(body)
    run.turn()
    run.pass_time(60)
    decision = run.turn()

    assert decision.taken_entries == {3: 0, 4: 1, 2: 2}
    assert [(closing.position, closing.at) for closing in decision.closings] == [
        ("1.1", BEGIN + timedelta(seconds=10)),
        ("1.2", BEGIN + timedelta(seconds=20)),
        ("1.0", BEGIN + timedelta(seconds=30)),
        ("1", BEGIN + timedelta(seconds=60)),
    ]


# -- O-59 ----------------------------------------------------------------------------------------------------------

TOKYO = timezone(timedelta(hours=9))


def due_of(make: Any) -> datetime:
    def body() -> Workflow[None]:
        yield from make()

    due = Driver(body).turn().openings[0].due_at
    assert due is not None
    return due


@pytest.mark.parametrize(
    ("make", "seconds"),
    [
        (lambda: sleep(30), 30),
        (lambda: sleep(0.5), 0.5),
        (lambda: sleep(timedelta(minutes=2)), 120),
        (lambda: sleep(days=3, hours=2), 266_400),
        (lambda: sleep(10, minutes=1), 70),
        (lambda: sleep(0), 0),
        (lambda: sleep(-5), 0),
        (lambda: sleep(timedelta(days=-400)), 0),
        (lambda: sleep_until(BEGIN), 0),
        (lambda: sleep_until(BEGIN - timedelta(days=9)), -777_600),
    ],
)
def test_o59_a_sleep_is_due_from_the_turn_that_yields_it(make: Any, seconds: float) -> None:
    assert due_of(make) == BEGIN + timedelta(seconds=seconds)


def test_o59_another_zone_is_stored_as_the_utc_instant() -> None:
    due = due_of(lambda: sleep_until(datetime(2026, 11, 2, 9, 0, tzinfo=TOKYO)))

    assert (due, due.tzinfo) == (datetime(2026, 11, 2, 0, 0, tzinfo=timezone.utc), timezone.utc)


@pytest.mark.parametrize(
    "make",
    [
        lambda: sleep_until(datetime(2026, 1, 1, 12)),  # noqa: DTZ001
        lambda: sleep_until(date(2026, 1, 1)),
        lambda: sleep_until("2026-01-01T00:00:00Z"),
        lambda: sleep_until(None),
        lambda: sleep(float("nan")),
        lambda: sleep(float("inf")),
        lambda: sleep(timedelta.max),
        lambda: sleep(10**400),
        lambda: sleep("30"),  # type: ignore[arg-type]
        lambda: sleep(True),
        lambda: sleep(),
        lambda: sleep(fortnights=1),
        lambda: sleep(days=10**12),
    ],
    ids=range(13),
)
def test_o59_an_odd_time_blocks_at_the_line_that_gives_it(make: Any) -> None:
    def body() -> Workflow[None]:
        yield from make()

    decision = Driver(body).turn()

    assert decision == Decision(state="BLOCKED", failure=decision.failure, waiting=decision.waiting)
    assert decision.failure is not None
    assert decision.failure.type == "durable_celery.errors.BadValue"
    assert "(body, line " in decision.waiting


def test_o59_a_sleep_of_no_time_ends_with_the_next_turn() -> None:
    def body() -> Workflow[None]:
        yield from sleep(0)

    run = Driver(body)

    assert run.turn().state == "WAITING"
    assert run.has_news()
    assert run.turn().state == "COMPLETED"
