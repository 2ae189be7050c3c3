"""map_step: what is lost is found."""

from __future__ import annotations

from datetime import timedelta

import pytest

from django_app.models import StepResult
from durable_celery.core import transitions as t
from tests.engine.map_steps import (
    _nothing_ran,  # noqa: F401
    doubling,
    states,
)
from tests.pump import Pump, counted


def test_members_whose_messages_are_lost_are_sent_again(pump: Pump):
    pump.fate = lambda hint: () if hint.number % 2 else (0.0,)
    handle = doubling.start(list(range(20)), limit=5)
    pump.finish()
    assert handle.result(timeout=1) == tuple(2 * n for n in range(20))


@pytest.mark.parametrize("point", ["record.after", "record.before", "claim.after_commit", "turn.after_commit"])
@pytest.mark.parametrize("nth", [1, 3])
def test_a_process_that_dies_anywhere_leaves_nothing_behind(pump: Pump, point: str, nth: int):
    handle = doubling.start([1, 2, 3])
    pump.kill_at(point, nth)
    pump.finish()
    assert handle.result(timeout=1) == (2, 4, 6)


def test_the_end_of_the_last_member_is_found_if_nobody_told(pump: Pump):
    handle = doubling.start([1, 2])
    pump.deliver(pump.ready()[0])
    pump.kill_at("record.after", 2)
    pump.drain()
    assert set(states(handle).values()) == {t.SUCCEEDED}
    assert handle.status == t.WAITING
    pump.finish()
    assert handle.result(timeout=1) == (2, 4)


def test_the_tick_looks_at_ended_members_of_an_open_map_once_and_together(pump: Pump):
    pump.tick()
    statements = [statements_of_a_tick_after(pump, members) for members in (5, 100)]
    assert statements[0] == statements[1]


def statements_of_a_tick_after(pump: Pump, members: int) -> int:
    handle = doubling.start(list(range(members + 1)))
    pump.deliver(pump.ready()[0])
    for hint in pump.ready()[:members]:
        pump.deliver(hint)
    pump.queue.clear()
    StepResult.objects.filter(state=t.SCHEDULED, mapped=True).update(look_at=None)
    pump.now += timedelta(seconds=10)
    with counted() as sent:
        assert pump.tick().advanced == 0
    assert not StepResult.objects.filter(mapped=True, look_at__isnull=False).exists()
    assert handle.status == t.WAITING
    return len(sent)
