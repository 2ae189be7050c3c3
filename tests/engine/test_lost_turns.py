"""A turn that takes its process along is not taken for ever: after so many deaths in a row its instance is BLOCKED."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID

import pytest

from django_app.models import WorkflowInstance
from durable_celery import Signal, Workflow, step, workflow
from durable_celery.engine import deaths
from tests.pump import Killed, Pump, counted, release

go_on = Signal("go_on", str)
runs: list[str] = []
deadly_for: list[int] = [0]


@step
def plain(what: str) -> str:
    return what


@workflow
def deadly(run: str) -> Workflow[str]:
    """Its second turn ends its process, as often as ``deadly_for`` says."""
    yield from plain(run)
    runs.append(run)
    if len(runs) <= deadly_for[0]:
        raise Killed
    yield from plain(run)
    return run


@workflow
def waiting() -> Workflow[str]:
    return (yield from go_on.wait())


@pytest.fixture(autouse=True)
def fresh() -> None:
    runs.clear()
    deadly_for[0] = 99


def row(handle: object) -> WorkflowInstance:
    found: WorkflowInstance = WorkflowInstance.objects.get(pk=handle.id)  # type: ignore[attr-defined]
    return found


def test_a_turn_that_ends_its_worker_each_time_is_blocked_though_nobody_saw_it_die(pump: Pump) -> None:
    handle = deadly.start("run")
    neighbour = waiting.start()
    pump.finish()
    assert handle.status == "BLOCKED"
    assert handle.waiting_for.startswith("blocked: 3 turns in a row took their process along, which is MAX_DEATHS")
    assert "Correct the workflow's body" in handle.waiting_for
    died = len(runs)
    pump.advance_time(minutes=10)
    assert len(runs) == died, "it is not tried again"
    go_on.send(neighbour, "now")
    pump.finish()
    assert neighbour.result(timeout=0) == "now"


def test_a_turn_that_comes_through_in_the_end_starts_the_count_anew(pump: Pump) -> None:
    deadly_for[0] = 5
    handle = deadly.start("run")
    pump.finish()
    assert handle.result(timeout=0) == "run"
    assert (row(handle).turn_deaths, row(handle).turn_begun_at) == (0, None)


def test_deaths_that_a_parent_saw_are_counted_at_once(pump: Pump) -> None:
    handle = waiting.start()
    pump.drain()
    for number in (1, 2):
        deaths.note(UUID(handle.id), "pool process 7 of a was killed by SIGSEGV")
        assert (row(handle).turn_deaths, handle.status) == (number, "WAITING")
        assert len(pump.queue) == number, "the next one tries"
    deaths.note(UUID(handle.id), "pool process 7 of a was killed by SIGSEGV")
    assert handle.status == "BLOCKED"
    assert "MAX_DEATHS: pool process 7 of a was killed by SIGSEGV" in handle.waiting_for


def test_a_committed_turn_takes_the_deaths_before_it_back(pump: Pump) -> None:
    deadly_for[0] = 0
    handle = deadly.start("run")
    for _ in range(2):
        deaths.note(UUID(handle.id), "it was killed")
    pump.finish()
    assert (handle.status, row(handle).turn_deaths) == ("COMPLETED", 0)
    deaths.note(UUID(handle.id), "it was killed")
    assert row(handle).turn_deaths == 0, "it has ended"


def test_retry_lets_a_blocked_one_try_again(pump: Pump) -> None:
    handle = deadly.start("run")
    pump.finish()
    assert handle.status == "BLOCKED"
    deadly_for[0] = 0
    handle.retry()
    pump.finish()
    assert handle.result(timeout=0) == "run"


def test_other_code_that_dies_of_it_too_is_stopped_as_well(pump: Pump) -> None:
    def first(run: str) -> Workflow[str]:
        yield from plain(run)
        runs.append(run)
        raise Killed

    def second(run: str) -> Workflow[str]:
        yield from plain(run)
        runs.append(f"{run} again")
        raise Killed

    handle = release("dying_release", first).start("run")
    pump.finish()
    assert handle.status == "BLOCKED"
    release("dying_release", second)
    runs.clear()
    for _ in range(20):
        pump.now += timedelta(seconds=10)
        pump.tick()
        pump.drain()
    died = len(runs)
    assert died > 0
    pump.advance_time(minutes=10)
    assert (len(runs), handle.status) == (died, "BLOCKED")


def test_a_turn_in_time_costs_nothing_and_a_late_one_one_statement(pump: Pump) -> None:
    handles = [waiting.start() for _ in range(2)]
    pump.drain()
    costs = []
    for handle, late in zip(handles, (0, 60), strict=True):
        go_on.send(handle, "now")
        pump.now += timedelta(seconds=late)
        with counted() as sent:
            pump.drain()
        costs.append(len(sent))
    assert costs[1] == costs[0] + 1
