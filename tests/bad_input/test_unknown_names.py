"""Work for code that a worker does not have: left for one that has it, and said. Nothing is lost, nothing counted."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from uuid import UUID

import pytest
from django.utils import timezone

from django_app.models import StepAttempt, StepResult, WorkflowInstance
from durable_celery import Workflow, WorkflowNotFound, step, workflow
from durable_celery.engine import turns
from durable_celery.registry import registry
from tests.effects import effects
from tests.processes import eventually
from tests.project.testapp.case_versions import novelty
from tests.pump import Pump

pytestmark = pytest.mark.django_db(transaction=True)

ran: list[str] = []


@step(name="unknown.pack")
def pack(what: str) -> str:
    ran.append(what)
    return what


@workflow(name="unknown.ship")
def ship(what: str) -> Workflow[str]:
    return (yield from pack(what))


@workflow(name="unknown.ship", version=2)
def ship_again(what: str) -> Workflow[str]:
    return "again " + (yield from pack(what))


@pytest.fixture(autouse=True)
def _nothing_ran() -> None:
    ran.clear()


@contextmanager
def without(*, steps: tuple[str, ...] = (), workflows: tuple[tuple[str, int], ...] = ()) -> Iterator[None]:
    """This process as one of older code, which does not have these."""
    taken = [(registry._steps, name, registry._steps.pop(name)) for name in steps]
    taken += [(registry._workflows, place, registry._workflows.pop(place)) for place in workflows]  # type: ignore[misc]
    try:
        yield
    finally:
        for known, place, definition in taken:
            known[place] = definition


def test_a_step_nobody_here_knows_is_left_as_it_is_and_said(pump: Pump) -> None:
    with without(steps=("unknown.pack",)):
        handle = ship.start("parcel")
        pump.drain()
        row = StepResult.objects.get(instance_id=handle.id)
        assert (row.state, row.attempt, row.failures, row.token) == ("SCHEDULED", 0, 0, None)
        assert "a worker that knows step 'unknown.pack'" in handle.waiting_for
        assert handle.status == "WAITING"


def test_a_step_is_run_by_the_first_worker_that_knows_it_and_no_attempt_was_counted(pump: Pump) -> None:
    with without(steps=("unknown.pack",)):
        handle = ship.start("parcel")
        pump.advance_time(minutes=10)
        assert ran == []
    pump.advance_time(31)
    assert handle.result(timeout=0) == "again parcel"
    assert (ran, StepAttempt.objects.count()) == (["parcel"], 0)
    assert StepResult.objects.get(instance_id=handle.id).attempt == 1
    assert handle.waiting_for == ""


@pytest.mark.parametrize("version", [1, 2])
def test_a_workflow_nobody_here_knows_is_left_as_it_is_and_said_with_its_version(pump: Pump, version: int) -> None:
    places = tuple(("unknown.ship", number) for number in (1, 2))
    if version == 1:
        with without(workflows=places[1:]):
            handle = ship.start("parcel")
    else:
        handle = ship.start("parcel")
    with without(workflows=places[version - 1 : version]):
        pump.drain()
        row = WorkflowInstance.objects.get(pk=handle.id)
        assert (row.state, row.turn, row.revision) == ("PENDING", 0, 0)
        assert f"a worker that knows workflow 'unknown.ship' version {version}" in handle.waiting_for
        assert f"it knows versions [{3 - version}]" in handle.waiting_for
        assert "Deploy the code that has it" in handle.waiting_for
        pump.advance_time(minutes=10)
        assert handle.status == "PENDING"
    pump.advance_time(31)
    assert handle.result(timeout=0) == ("parcel" if version == 1 else "again parcel")
    assert ran == ["parcel"]


def test_a_workflow_in_the_middle_waits_for_its_code_and_keeps_its_journal(pump: Pump) -> None:
    handle = ship.start("parcel")
    (hint,) = pump.ready()
    pump.deliver(hint)
    with without(workflows=(("unknown.ship", 2),)):
        pump.drain()
        assert ran == ["parcel"]
        assert "a worker that knows workflow 'unknown.ship' version 2" in handle.waiting_for
        pump.advance_time(minutes=5)
        assert [(entry.name, entry.state) for entry in handle.history()] == [("unknown.pack", "SUCCEEDED")]
    pump.advance_time(31)
    assert handle.result(timeout=0) == "again parcel"
    assert ran == ["parcel"]


def test_a_workflow_nobody_knows_cannot_be_started(pump: Pump) -> None:
    with without(workflows=(("unknown.ship", 1), ("unknown.ship", 2))), pytest.raises(WorkflowNotFound) as caught:
        ship.start("parcel")
    assert "workflow 'unknown.ship' version 1 is not known to this process" in str(caught.value)
    assert WorkflowInstance.objects.count() == 0


@pytest.mark.prefork
@pytest.mark.timeout(180)
def test_a_worker_of_older_code_leaves_work_for_one_of_newer_code(start_worker) -> None:
    run = "unknown names"
    handles = {"workflow": novelty.start(run), "step": novelty.start(run)}
    turns.advance(UUID(handles["step"].id))  # a process of newer code, which goes on with something else then
    old = start_worker(arguments=["-n", "old@%h"], env={"TEST_CODE": "old"})
    eventually(lambda: "a worker that knows workflow" in handles["workflow"].waiting_for, "what the workflow waits for")
    # It knows neither the step nor the workflow around it; which of the two it said last is chance.
    eventually(lambda: "a worker that knows" in handles["step"].waiting_for, "what the step waits for")
    unknown = "this worker does not know the step tests.project.testapp.case_versions.novel"
    eventually(lambda: unknown in old.text(), "its word about the step")
    assert "Nothing is lost" in old.text()
    assert StepResult.objects.get(instance_id=handles["step"].id).attempt == 0
    old.stop()
    start_worker(arguments=["-n", "new@%h"])
    let_patience_pass()
    assert [handle.result(timeout=60) for handle in handles.values()] == ["novel", "novel"]
    assert effects(run) == {"novel": 2}


def let_patience_pass() -> None:
    """As if the half minute were over until these rows are looked at again."""
    due = timezone.now() - timedelta(seconds=1)
    StepResult.objects.filter(look_at__isnull=False).update(look_at=due)
    WorkflowInstance.objects.filter(look_at__isnull=False).update(look_at=due)
