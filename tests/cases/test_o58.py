"""O-58: a due time is fixed when it is first recorded; each replay finds it, and `now()`, as they were."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from itertools import pairwise

import pytest

from django_app.models import StepResult
from durable_celery import Signal, Workflow, gather, now, sleep, sleep_until, step, workflow
from tests.pump import BEGIN, Pump

MINUTE = timedelta(seconds=60)
poke = Signal("poke", int)
seen: list[list[datetime]] = []  # what each run of the body saw, one list each


@step
def work() -> int:
    return 1


@workflow
def reminded() -> Workflow[list[datetime]]:
    mine: list[datetime] = []
    seen.append(mine)
    t0 = now()
    mine.append(t0)
    yield from work()
    mine.append(now())
    yield from gather(sleep_until(t0 + MINUTE), poke.wait(), poke.wait())
    mine.append(now())
    yield from sleep(60)
    mine.append(now())
    return mine


@pytest.fixture(autouse=True)
def _clean() -> None:
    seen.clear()


def due_times(handle: object) -> list[datetime]:
    timers = StepResult.objects.filter(instance_id=handle.id, kind="timer")  # type: ignore[attr-defined]
    return list(timers.order_by("position").values_list("due_at", flat=True))


def test_o58_replays_at_30_and_90_seconds_find_the_same_due_time(pump: Pump) -> None:
    handle = reminded.start()
    pump.drain()
    assert due_times(handle) == [BEGIN + MINUTE]
    pump.now += timedelta(seconds=30)
    poke.send(handle, 30)  # the body runs again from its beginning
    pump.drain()
    assert due_times(handle) == [BEGIN + MINUTE]
    pump.now += timedelta(seconds=60)  # nobody looked at +60
    poke.send(handle, 90)
    pump.drain()
    assert due_times(handle)[0] == BEGIN + MINUTE
    pump.finish()
    assert handle.status == "COMPLETED"
    # the timer that was late does not push the next one: that counts from the turn that made it
    assert due_times(handle) == [BEGIN + MINUTE, BEGIN + timedelta(seconds=150)]
    assert len(seen) >= 4
    whole = handle.result(timeout=0)
    for mine in seen:
        assert mine == whole[: len(mine)]
        assert mine[0] == BEGIN


def test_o58_now_is_aware_utc_never_none_and_never_goes_back(pump: Pump) -> None:
    handle = reminded.start()
    pump.drain()
    pump.now -= timedelta(seconds=45)  # a clock that is set back
    poke.send(handle, 1)
    pump.drain()
    pump.advance_time(40)
    poke.send(handle, 2)
    pump.finish()
    moments = handle.result(timeout=0)
    assert len(moments) == 4
    assert all(moment is not None and moment.tzinfo is timezone.utc for mine in seen for moment in mine)
    assert all(earlier <= later for earlier, later in pairwise(moments))
    assert due_times(handle)[0] == BEGIN + MINUTE


def test_o58_a_replay_of_the_finished_journal_sees_the_same_times(pump: Pump) -> None:
    handle = reminded.start()
    pump.drain()
    pump.kill_at("turn.before_commit", 1)
    pump.advance_time(61)
    pump.kill_at("turn.in_transaction", 1)
    for number in (1, 2):
        poke.send(handle, number)
    pump.finish()
    whole = handle.result(timeout=0)
    assert [mine[:2] for mine in seen] == [[BEGIN, BEGIN][: len(mine)] for mine in seen]
    assert whole[0] + MINUTE <= whole[2] <= whole[0] + MINUTE + timedelta(seconds=5)
    assert due_times(handle)[0] == whole[0] + MINUTE
    assert due_times(handle)[1] == whole[2] + MINUTE
