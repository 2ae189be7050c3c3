"""The order in which a body sees what has happened."""

from __future__ import annotations

import random
from datetime import datetime, timedelta
from typing import Any

import pytest

from durable_celery.core import transitions as t
from durable_celery.core.journal import COMPENSATION, GATHER, SIGNAL, STEP, TIMER, Entry, Journal, Message, events
from tests.core.driver import BEGIN

NOW = BEGIN + timedelta(minutes=1)


def at(seconds: float) -> datetime:
    return BEGIN + timedelta(seconds=seconds)


def entry(pk: int, kind: str = STEP, **values: Any) -> Entry:
    standard: dict[str, Any] = {"position": str(pk), "name": "core.a", "state": t.SUCCEEDED, "finished_at": at(pk)}
    return Entry(id=pk, kind=kind, **standard | values)


def waiting(pk: int, due: float, kind: str = TIMER) -> Entry:
    return entry(pk, kind, state=t.SCHEDULED, due_at=at(due), finished_at=None)


def message(pk: int, stored: float, **values: Any) -> Message:
    return Message(id=pk, kind="signal", name="go", payload="null", stored_at=at(stored), **values)


def order(journal: Journal, turn: int = 3) -> list[str]:
    """What is seen in this order; messages as m1, rows by their position; recorded ones with their turn."""
    return [
        (f"m{event.message.id}" if event.message else event.entry.position if event.entry else "?")
        + ("" if event.turn == turn else f"@{event.turn}")
        for event in events(journal, turn=turn, now=NOW)
    ]


def of(*outcomes: Entry | Message) -> Journal:
    mixed = random.sample(outcomes, len(outcomes))
    return Journal(
        instance_id="i",
        entries=[x for x in mixed if isinstance(x, Entry)],
        messages=[x for x in mixed if isinstance(x, Message)],
    )


def test_what_is_new_comes_in_order_of_its_own_time() -> None:
    journal = of(entry(1, finished_at=at(30)), message(9, 20), waiting(3, due=10), waiting(4, due=40, kind=SIGNAL))

    assert order(journal) == ["3", "m9", "1", "4"]


def test_at_one_time_messages_come_before_steps_before_timers() -> None:
    journal = of(
        waiting(1, due=5), waiting(2, due=5, kind=SIGNAL), entry(3, finished_at=at(5)), message(8, 5), message(7, 5)
    )

    assert order(journal) == ["m7", "m8", "3", "1", "2"]


def test_the_recorded_order_stands_whatever_the_times_say() -> None:
    journal = of(
        entry(1, finished_at=at(30), taken_turn=1, taken_order=0, taken_at=at(31)),
        message(9, 1, taken_turn=1, taken_order=1, taken_at=at(31)),
        entry(2, finished_at=at(2), taken_turn=2, taken_order=1, taken_at=at(32)),
        entry(3, TIMER, due_at=at(3), taken_turn=2, taken_order=0, taken_at=at(32)),
        entry(4, finished_at=at(0)),
    )

    assert order(journal) == ["1@1", "m9@1", "3@2", "2@2", "4"]


def test_an_outcome_carries_the_time_of_the_turn_that_took_it_in() -> None:
    journal = of(entry(1, taken_turn=2, taken_order=0, taken_at=at(9)), entry(2), message(5, 3))

    assert [(event.turn, event.order, event.at) for event in events(journal, turn=3, now=NOW)] == [
        (2, 0, at(9)),
        (3, 0, NOW),
        (3, 1, NOW),
    ]


@pytest.mark.parametrize("state", [t.HELD, t.SCHEDULED, t.RUNNING, t.RETRYING, t.EXTERNAL, t.ABANDONED])
def test_a_step_that_has_not_ended_is_no_news(state: str) -> None:
    assert order(of(entry(1, state=state, finished_at=None))) == []


@pytest.mark.parametrize("state", [t.SUCCEEDED, t.FAILED, t.CANCELLED])
def test_an_abandoned_row_is_no_news_however_it_ends(state: str) -> None:
    assert order(of(entry(1, state=state, abandoned=True))) == []


def test_a_timer_is_news_from_its_due_time_on() -> None:
    assert order(of(waiting(1, due=60), waiting(2, due=60, kind=SIGNAL))) == ["1", "2"]
    assert order(of(waiting(1, due=60.001), waiting(2, due=60.001, kind=SIGNAL))) == []


def test_a_wait_without_a_time_out_is_never_due() -> None:
    assert order(of(entry(1, SIGNAL, state=t.SCHEDULED, due_at=None, finished_at=None))) == []


def test_a_timer_given_up_does_not_fire() -> None:
    assert order(of(entry(1, TIMER, state=t.CANCELLED, due_at=at(1), abandoned=True))) == []


def test_gathers_and_compensations_are_no_events_even_when_taken_in() -> None:
    journal = of(
        entry(1, GATHER),
        entry(2, COMPENSATION, position="1~"),
        entry(3, COMPENSATION, position="2~", taken_turn=2, taken_order=0, taken_at=at(5)),
    )

    assert order(journal) == []
