"""O-07: a process that dies between two steps of its own duty, a commit and the message of what follows from it, must
not lose the rest of the workflow."""

from __future__ import annotations

import pytest

from django_app.models import StepResult
from durable_celery import Workflow, step, workflow
from tests.effects import effects
from tests.processes import eventually
from tests.project.testapp.workflows import sequence

POINTS = {
    "record.after": "just after the result was committed",
    "turn.after_commit": "just after the turn was committed, before it published",
    "publish.after": "just after it published",
}


@pytest.mark.kill
@pytest.mark.prefork
@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("point", POINTS)
def test_o07_a_kill_between_a_commit_and_the_message_that_follows_loses_and_doubles_nothing(start_worker, point):
    handle = sequence.start("run", 2)
    dying = start_worker(concurrency=1, ready=False, env={"DURABLE_CELERY_FAULT": f"{point}:kill"})
    eventually(lambda: "SIGKILL" in dying.text(), f"a death at {point}")
    dying.kill()
    start_worker(concurrency=1, env={"TEST_DURABLE_CELERY": '{"TICK": 0.2}'})

    assert handle.result(timeout=30) == ["step 0", "step 1"]
    assert handle.status == "COMPLETED"
    assert effects("run") == {"step 0": 1, "step 1": 1}
    assert_one_row_a_position(handle)


# -- the same by raising in place of killing --------------------------------------------------------------------------

bodies: list[int] = []


@step
def count(number: int) -> int:
    bodies.append(number)
    return number


@workflow
def two_steps() -> Workflow[list[int]]:
    first = yield from count(1)
    second = yield from count(2)
    return [first, second]


@pytest.mark.parametrize("nth", [1, 2])
@pytest.mark.parametrize("point", POINTS)
def test_o07_the_next_look_of_the_clock_makes_up_for_what_a_dead_process_did_not_send(pump, point, nth):
    bodies.clear()
    handle = two_steps.start()
    began = pump.now
    pump.kill_at(point, nth)
    pump.drain()
    pump.finish()

    assert handle.result(timeout=0) == [1, 2]
    assert handle.status == "COMPLETED"
    assert bodies == [1, 2]
    assert_one_row_a_position(handle)
    # What is lost is missed after 2 s (an outcome nobody took in) or 3 s (a message nobody took up).
    assert (pump.now - began).total_seconds() <= 3


def assert_one_row_a_position(handle) -> None:
    rows = StepResult.objects.filter(instance_id=handle.id).order_by("id")
    assert [row.position for row in rows] == ["1", "2"]
    assert [entry.position for entry in handle.history()] == ["1", "2"]
    taken = [(row.taken_turn, row.taken_order) for row in rows]
    assert taken == [(2, 0), (3, 0)]
