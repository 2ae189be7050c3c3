"""A message that waits its turn is not lost: while workers are behind, nothing is sent twice; after that, it is."""

from __future__ import annotations

from datetime import timedelta

import pytest

from durable_celery import Workflow, runtime, step, sweeps, workflow
from tests.pump import BEGIN, Pump

pytestmark = pytest.mark.django_db(transaction=True)


@step
def quick() -> str:
    return "done"


@workflow
def short() -> Workflow[str]:
    return (yield from quick())


def behind(pump: Pump, seconds: float) -> None:
    """The worker tells at its renewal by how much it is behind."""
    assert pump.lease is not None
    assert runtime.current().store.renew_lease(pump.lease.id, pump.now + timedelta(hours=1), lag=seconds)


def sent_steps(pump: Pump) -> int:
    return sum(hint.step is not None for hint in pump.sent)


def test_a_step_that_waits_its_turn_behind_others_is_not_sent_again(pump: Pump) -> None:
    short.start()
    pump.deliver(pump.queue[0])
    behind(pump, 60)
    for seconds in (4, 30, 60, 100):
        pump.now = BEGIN + timedelta(seconds=seconds)
        sweeps.tick(by="test", force=True)
    assert sent_steps(pump) == 1


def test_a_step_whose_message_is_lost_is_sent_again_once_workers_keep_up(pump: Pump) -> None:
    handle = short.start()
    pump.deliver(pump.queue[0])
    pump.queue.clear()
    behind(pump, 0)
    pump.now += timedelta(seconds=4)
    sweeps.tick(by="test", force=True)
    assert sent_steps(pump) == 2
    pump.drain()
    assert handle.result() == "done"


def test_a_start_that_waits_its_turn_is_not_hinted_at_again(pump: Pump) -> None:
    short.start()
    behind(pump, 60)
    pump.now += timedelta(seconds=10)
    sweeps.tick(by="test", force=True)
    assert len(pump.sent) == 1


def test_a_message_lost_in_an_outage_is_sent_again_seconds_after_the_backlog_is_over(pump: Pump) -> None:
    handle = short.start()
    pump.deliver(pump.queue[0])
    pump.queue.clear()
    behind(pump, 60)
    for _ in range(8):
        pump.now += timedelta(seconds=5)
        sweeps.tick(by="test", force=True)
    assert sent_steps(pump) == 1
    behind(pump, 0)
    pump.now += timedelta(seconds=5)
    sweeps.tick(by="test", force=True)
    pump.drain()
    assert handle.result(timeout=0) == "done"
