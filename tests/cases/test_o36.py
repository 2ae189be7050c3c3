"""O-36: a crash between "the parent waits" and "the child exists" must leave both or neither, and then one child."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest

from django_app.models import Mailbox, StepResult, WorkflowInstance
from durable_celery.core import identity
from tests.effects import effects
from tests.processes import Worker
from tests.project.testapp.case_children import ordering, packing
from tests.pump import Pump

# In the order in which one turn of the parent reaches them.
NOTHING_YET = ["turn.before_commit", "turn.begins", "turn.swapped", "turn.children_in_transaction", "turn.related",
               "turn.in_transaction"]  # fmt: skip
BOTH = ["turn.after_commit", "publish.before", "publish.after"]
FAST = '{"TICK": 0.2, "LEASE": 2}'


def both_or_none(parent_id: UUID) -> bool:
    """Whether the parent waits for its child; nothing in between."""
    parent = WorkflowInstance.objects.get(pk=parent_id)
    waits = StepResult.objects.filter(instance_id=parent_id, kind="child").exists()
    exists = WorkflowInstance.objects.filter(parent_id=parent_id).exists()
    reachable = Mailbox.objects.filter(pk=identity.child_id(parent_id, "1")).exists()
    assert waits == exists == reachable == (parent.turn == 1)
    assert parent.state == ("WAITING" if waits else "PENDING")
    return waits


def assert_one_child(parent_id: UUID, run: str) -> None:
    """Its id is made of the parent's and the position, so it is the same one however often it is tried."""
    (child,) = WorkflowInstance.objects.filter(name=packing.name)
    assert child.pk == identity.child_id(parent_id, "1")
    assert (child.parent_id, child.parent_position, child.state) == (parent_id, "1", "COMPLETED")
    (row,) = StepResult.objects.filter(instance_id=parent_id)
    assert (row.kind, row.state, row.position) == ("child", "SUCCEEDED", "1")
    assert effects(run) == {"packed": 1}


@pytest.mark.kill
@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("point", ["turn.swapped", "turn.children_in_transaction", "turn.in_transaction",
                                   "turn.after_commit"])  # fmt: skip
def test_o36_a_killed_worker_leaves_both_or_none_and_the_next_one_completes(
    start_worker: Callable[..., Worker], point: str
) -> None:
    env = {"TEST_DURABLE_CELERY": FAST}
    doomed = start_worker(pool="solo", env={**env, "DURABLE_CELERY_FAULT": f"{point}:kill"})
    handle = ordering.start(point)
    assert doomed.process.wait(timeout=60) == -9
    assert both_or_none(UUID(handle.id)) == (point in BOTH)

    start_worker(pool="solo", env=env)
    assert handle.result(timeout=60) == "packed and sent"
    assert_one_child(UUID(handle.id), point)


@pytest.mark.parametrize("point", NOTHING_YET + BOTH)
def test_o36_a_death_at_any_point_of_the_turn(pump: Pump, point: str) -> None:
    handle = ordering.start(point)
    pump.kill_at(point)
    pump.deliver(pump.queue[0])
    assert pump._kills == []
    assert both_or_none(UUID(handle.id)) == (point in BOTH)
    pump.finish()
    assert handle.result(timeout=0) == "packed and sent"
    assert_one_child(UUID(handle.id), point)


def test_o36_the_end_of_the_child_is_the_end_of_the_wait(pump: Pump) -> None:
    """The same the other way round: a child that has ended and a parent that still waits are never seen together."""
    seen: list[tuple[str, str]] = []
    for nth, point in enumerate(["turn.swapped", "turn.in_transaction", "turn.after_commit"]):
        handle = ordering.start(f"end {nth}")
        pump.kill_at(point, 3)  # after the first turns of the parent and of its child comes the child's end
        pump.drain()
        child = WorkflowInstance.objects.get(parent_id=handle.id)
        row = StepResult.objects.get(instance_id=handle.id)
        seen.append((child.state, row.state))
        pump.finish()
        assert handle.result(timeout=0) == "packed and sent"
        assert effects(f"end {nth}") == {"packed": 1}
    assert seen == [("WAITING", "RUNNING"), ("WAITING", "RUNNING"), ("COMPLETED", "SUCCEEDED")]


def test_o36_a_lost_message_to_the_child_is_sent_again_by_the_sweep(pump: Pump) -> None:
    lost: list[Any] = []

    def lose_first(hint: Any) -> tuple[float, ...]:
        if hint.instance is not None and len(lost) < 2 and len(pump.sent) > 1:
            lost.append(hint)
            return ()
        return (0.0,)

    pump.fate = lose_first
    handle = ordering.start("lost")
    pump.drain()
    assert both_or_none(UUID(handle.id))
    assert WorkflowInstance.objects.get(parent_id=handle.id).state == "PENDING"
    pump.finish()
    assert handle.result(timeout=0) == "packed and sent"
    assert_one_child(UUID(handle.id), "lost")
