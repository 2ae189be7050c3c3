"""Work beside the body that is given up: by its handle, by the end of the body, by a cancel."""

from __future__ import annotations

from typing import Any

import pytest

from durable_celery import (
    CancelRequested,
    Signal,
    StepFailed,
    Workflow,
    WorkflowCancelled,
    gather,
    shield,
    sleep,
    spawn,
)
from tests.core.driver import Driver, a, b, c, shown

go = Signal("go")


def test_the_bodys_end_gives_up_what_is_still_open() -> None:
    def body() -> Workflow[Any]:
        yield from spawn(a())
        yield from spawn(gather(b(), sleep(10)))
        return (yield from c())

    run = Driver(body)
    run.turn()
    run.claim("1.0")
    run.succeed("3", "end")

    assert run.turn().value == "end"
    assert run.states() == {
        "1": "CANCELLED", "1.0": "ABANDONED", "2": "CANCELLED", "2.0": "CANCELLED", "2.0.0": "CANCELLED",
        "2.0.1": "CANCELLED", "3": "SUCCEEDED",
    }  # fmt: skip


# -- giving up -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("claimed", [False, True])
def test_a_handle_that_is_cancelled_raises_in_each_join(claimed: bool) -> None:
    def body() -> Workflow[Any]:
        handle = yield from spawn(a())
        yield from sleep(1)
        stopped = [(yield from handle.cancel()), (yield from handle.cancel())]
        caught = []
        for _ in range(2):
            try:
                yield from handle
            except StepFailed as error:
                caught.append((error.cancelled, error.step, error.position))
        yield from c()
        return stopped, caught, handle.done

    run = Driver(body)
    run.turn()
    if claimed:
        run.claim("1.0")
    run.pass_time(1)
    decision = run.turn()
    assert decision.withdrawn == ("1.0", "1")
    assert run.states()["1.0"] == ("ABANDONED" if claimed else "CANCELLED")
    if claimed:
        run.succeed("1.0", "late")
        assert not run.has_news()
    run.succeed("7")

    assert run.turn().value == ([True, False], [(True, "core.a", "1.0")] * 2, True)


def test_what_is_no_step_raises_that_the_workflow_gave_it_up() -> None:
    def body() -> Workflow[Any]:
        handle = yield from spawn(gather(a(), go.wait()))
        yield from sleep(1)
        yield from handle.cancel()
        try:
            yield from handle
        except WorkflowCancelled:
            return (yield from go.wait())

    run = Driver(body)
    run.turn()
    run.signal("go", "taken and given back")
    run.turn()
    run.pass_time(1)

    assert run.turn().value == "taken and given back"
    assert run.states()["1.0.0"] == "CANCELLED"


def test_what_has_ended_is_not_cancelled() -> None:
    def body() -> Workflow[Any]:
        handle = yield from spawn(a())
        value = yield from handle
        return value, (yield from handle.cancel()), (yield from handle)

    run = Driver(body)
    run.turn()
    run.succeed("1.0", 5)
    assert run.turn().value == (5, False, 5)


def test_work_opened_and_cancelled_in_one_turn_never_runs() -> None:
    def body() -> Workflow[Any]:
        handle = yield from spawn(a())
        yield from handle.cancel()
        yield from c()

    run = Driver(body)
    run.turn()
    assert run.states() == {"1": "CANCELLED", "1.0": "CANCELLED", "3": "SCHEDULED"}


def test_work_that_watches_cancelled_work_hears_of_it() -> None:
    def body() -> Workflow[Any]:
        first = yield from spawn(a())
        second = yield from spawn(gather(first, b(), return_exceptions=True))
        yield from first.cancel()
        yield from c()
        gone, value = yield from second
        return gone.cancelled, value

    run = Driver(body)
    run.turn()
    run.succeed("2.0.1", "b")
    run.turn()
    run.succeed("4")

    assert run.turn().value == (True, "b")


# -- the body is cancelled -----------------------------------------------------------------------------------------


def test_a_cancel_of_the_body_leaves_the_work_to_its_cleanup() -> None:
    def body() -> Workflow[Any]:
        handle = yield from spawn(a())
        try:
            yield from b()
        except CancelRequested:
            yield from c((yield from handle))
            raise

    run = Driver(body)
    run.turn()
    opened = {opening.position: opening.shielded for opening in run.decisions[0].openings}
    assert opened == {"1": False, "1.0": True, "2": False}
    run.cancel("why")
    assert shown(run.turn()) == [
        "give up 2", "take message 1", "mark cancel:1 []", "WAITING spawned step core.a at 1.0",
    ]  # fmt: skip
    run.succeed("1.0", 5)
    assert "open step core.c at 4 SCHEDULED" in shown(run.turn())
    run.succeed("4")

    assert shown(run.turn())[-1] == "CANCELLED Cancelled: why"


def test_a_cancel_does_not_wait_for_joined_work_unless_it_is_shielded() -> None:
    def joining(join: Any) -> Driver:
        def body() -> Workflow[Any]:
            handle = yield from spawn(a())
            yield from join(handle)

        run = Driver(body)
        run.turn()
        run.claim("1.0")
        run.cancel("why")
        run.turn()
        return run

    assert joining(lambda handle: handle).state == "CANCELLED"
    run = joining(shield)
    assert run.state == "WAITING"
    run.succeed("1.0")
    assert shown(run.turn())[-1] == "CANCELLED Cancelled: why"


def test_a_forgotten_cancel_is_found() -> None:
    def body() -> Workflow[Any]:
        handle = yield from spawn(a())
        handle.cancel()  # type: ignore[unused-awaitable]
        yield from b()

    assert "cancel of step core.a at 1 was built at" in Driver(body).turn().waiting
