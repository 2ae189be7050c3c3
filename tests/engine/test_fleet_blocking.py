"""A run that this code does not fit: blocked once nobody else can be hoped for, and not before."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from durable_celery import Workflow
from tests.engine.fleets import Fleet, after_the_check, loan, new_code, old_code, pay, row_of
from tests.pump import Pump

pytestmark = pytest.mark.django_db(transaction=True)


def test_with_nobody_of_other_code_it_is_blocked_at_once(pump: Pump, fleets: Fleet, blocks: list[str]) -> None:
    fleets.worker("old", old_code)
    handle = after_the_check(pump, fleets)
    with fleets.take(old_code) as old:
        pump.deliver(pump.ready()[0])
        assert handle.status == "BLOCKED"
        assert "recorded is step fleet.check" in handle.waiting_for
        assert row_of(handle).blocked_by.split() == [old.fingerprint]
    assert blocks == [handle.id]
    with fleets.take(new_code):
        pump.advance_time(3)
    assert handle.result(timeout=0) == ["checked ann", "paid ann"]


def test_it_is_blocked_within_seconds_of_the_last_one_leaving(pump: Pump, fleets: Fleet, blocks: list[str]) -> None:
    fleets.worker("new", new_code)
    handle = after_the_check(pump, fleets)
    with fleets.take(old_code):
        pump.deliver(pump.ready()[0])
        pump.advance_time(9)
        assert handle.status != "BLOCKED"
        fleets.gone("new")
        pump.advance_time(6)
        assert handle.status == "BLOCKED"
    assert blocks == [handle.id]


def test_a_worker_whose_lease_ran_out_a_while_ago_is_nobody(pump: Pump, fleets: Fleet) -> None:
    """A busy machine may keep it from renewing for longer than the lease; that must block nothing."""
    fleets.worker("new", new_code, seconds=10)
    handle = after_the_check(pump, fleets)
    with fleets.take(old_code):
        pump.deliver(pump.ready()[0])
        pump.advance_time(25)
        assert handle.status != "BLOCKED"
        pump.advance_time(20)
        assert handle.status == "BLOCKED"


def test_two_codes_that_both_do_not_fit_block_it(pump: Pump, fleets: Fleet, blocks: list[str]) -> None:
    def third(who: str) -> Workflow[list[str]]:
        yield from pay(who)
        return []

    third.__qualname__ = third.__name__ = "loan"
    fleets.worker("old", old_code)
    fleets.worker("third", third)
    handle = after_the_check(pump, fleets)
    with fleets.take(old_code) as old:
        pump.deliver(pump.ready()[0])
    with fleets.take(third) as other:
        pump.advance_time(1)
        assert handle.status == "BLOCKED"
        assert row_of(handle).blocked_by.split() == [old.fingerprint, other.fingerprint]
    assert blocks == [handle.id]


def test_one_that_does_not_consume_the_queue_is_nobody(pump: Pump, fleets: Fleet, blocks: list[str]) -> None:
    fleets.worker("elsewhere", new_code, queues="mails\npictures")
    handle = after_the_check(pump, fleets)
    with fleets.take(old_code):
        pump.deliver(pump.ready()[0])
        assert handle.status == "BLOCKED"
    assert blocks == [handle.id]


def stride(pump: Pump, *, minutes: int) -> None:
    """A minute at a time, and no look in between: as workers whose queues are long."""
    for _ in range(minutes):
        pump.now += timedelta(minutes=1)
        pump.tick()
        pump.drain()


def test_one_that_consumes_the_queue_is_waited_for_long(pump: Pump, fleets: Fleet, blocks: list[str]) -> None:
    fleets.worker("new", new_code, queues="mails\nturns")
    handle = after_the_check(pump, fleets)
    with fleets.take(old_code):
        pump.deliver(pump.ready()[0])
        stride(pump, minutes=50)
        assert handle.status != "BLOCKED"
        assert blocks == []
        stride(pump, minutes=11)
        assert handle.status == "BLOCKED"


def test_one_that_announces_other_code_and_never_takes_it_is_not_waited_for_for_ever(pump: Pump, fleets: Fleet) -> None:
    fleets.worker("elsewhere", new_code, seconds=10**6)
    handle = after_the_check(pump, fleets)
    with fleets.take(old_code):
        pump.deliver(pump.ready()[0])
        pump.advance_time(minutes=4)
        assert handle.status != "BLOCKED"
        sent = len(pump.sent)
        pump.advance_time(minutes=2)
        assert handle.status == "BLOCKED"
        assert len(pump.sent) - sent < 20
    assert "recorded is step fleet.check" in handle.waiting_for


def test_a_bug_of_the_body_blocks_whoever_runs_beside(pump: Pump, fleets: Fleet) -> None:
    def broken(who: str) -> Workflow[Any]:
        raise ValueError(who)
        yield

    broken.__qualname__ = broken.__name__ = "loan"
    fleets.worker("old", old_code)
    handle = loan.start("ann")
    with fleets.take(broken):
        pump.drain()
        assert handle.status == "BLOCKED"
