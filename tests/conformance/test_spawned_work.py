from __future__ import annotations

from typing import Any

import pytest

from durable_celery import ChildFailed, StepFailed, WorkflowCancelled, gather, sleep, spawn
from tests.conformance.lives import fail, ran, run, say, start
from tests.pump import Pump


def test_spawned_work_runs_beside_the_body(pump: Pump) -> None:
    def body() -> Any:
        work = yield from spawn(sleep(60))
        yield from say("meanwhile")
        yield from work
        return (yield from say("joined"))

    assert run(pump, body) == "joined"
    assert ran == ["meanwhile", "joined"]


def test_a_handle_is_joined_any_number_of_times(pump: Pump) -> None:
    def body() -> Any:
        work = yield from spawn(say("once"))
        return (yield from work), (yield from work)

    assert run(pump, body) == ("once", "once")
    assert ran == ["once"]


def test_a_failure_is_raised_at_each_join(pump: Pump) -> None:
    def body() -> Any:
        work = yield from spawn(fail("broken"))
        told = []
        for _ in range(2):
            try:
                yield from work
            except StepFailed as error:
                told.append(error.message)
        return told

    assert run(pump, body) == ["broken", "broken"]


def test_a_failure_nobody_joins_changes_nothing(pump: Pump) -> None:
    def body() -> Any:
        yield from spawn(fail("unseen"))
        yield from sleep(60)
        return "fine"

    handle = start(body)
    pump.finish()
    assert handle.result(timeout=0) == "fine"
    assert [e.state for e in handle.history() if e.kind == "step"] == ["FAILED"]


def test_cancelled_work_raises_where_it_is_joined(pump: Pump) -> None:
    def body() -> Any:
        work = yield from spawn(say.using(retry=None)("never"))
        yield from work.cancel()
        try:
            yield from work
        except StepFailed as error:
            return error.cancelled

    assert run(pump, body) is True
    assert ran == []


def test_a_cancelled_wait_raises_where_it_is_joined(pump: Pump) -> None:
    def body() -> Any:
        work = yield from spawn(sleep(days=9))
        yield from work.cancel()
        try:
            yield from work
        except ChildFailed:
            return "child"
        except WorkflowCancelled:
            return "cancelled"

    assert run(pump, body) == "cancelled"
    assert pump.now.day == 29


def test_done_tells_without_waiting(pump: Pump) -> None:
    def body() -> Any:
        work = yield from spawn(sleep(10))
        before = work.done
        yield from sleep(20)
        return before, work.done

    assert run(pump, body) == (False, True)


def test_handles_are_joined_together(pump: Pump) -> None:
    def body() -> Any:
        works = []
        for n in range(3):
            works.append((yield from spawn(say(n))))
        return (yield from gather(*works))

    assert run(pump, body) == (0, 1, 2)


def test_the_end_of_the_body_gives_up_what_is_still_open(pump: Pump) -> None:
    def body() -> Any:
        yield from spawn(sleep(days=9))
        return "done"

    handle = start(body)
    pump.finish()
    assert handle.result(timeout=0) == "done"
    assert [e.state for e in handle.history() if e.kind == "timer"] == ["CANCELLED"]
    assert pump.now.day == 29


def test_a_cancel_of_the_body_leaves_spawned_work_to_its_cleanup(pump: Pump) -> None:
    def body() -> Any:
        work = yield from spawn(sleep(60))
        try:
            yield from sleep(days=9)
        finally:
            yield from work
            yield from say("joined while leaving")

    handle = start(body)
    pump.drain()
    handle.cancel()
    pump.finish()
    with pytest.raises(WorkflowCancelled):
        handle.result(timeout=0)
    assert ran == ["joined while leaving"]
