"""A final state never changes by itself: not by late messages, late results, signals, ticks, time or new code."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from django_app.models import Message, StepResult, WorkflowInstance
from durable_celery import InstanceClosed, RetryPolicy, Signal, Workflow, gather, runtime, step
from durable_celery.core import transitions
from tests.invariants.examples import few
from tests.pump import Pump, clear_tables, release

pytestmark = pytest.mark.django_db(transaction=True)

go = Signal("go", int)
NAME = "tests.invariants.final.workflow"
ran: list[str] = []


@step(retry=RetryPolicy(initial_interval=1, maximum_attempts=2, jitter=False))
def work(what: str) -> str:
    ran.append(what)
    return what


@step(retry=None)
def refuse() -> None:
    ran.append("refuse")
    raise ValueError("refused")


@step
def undo(result: str | None) -> None:
    ran.append("undo")


def body(ending: str) -> Workflow[str]:
    yield from work("first").compensate_with(undo)
    yield from gather(work("a"), work("b"))
    if ending == "FAILED":
        yield from refuse()
    if ending != "COMPLETED":
        yield from go.wait()
    return "done"


def other_body(ending: str) -> Workflow[str]:
    yield from work("something else")
    return "another end"


def end(pump: Pump, ending: str) -> Any:
    handle = release(NAME, body).start(ending)
    pump.finish()
    if ending == "TERMINATED":
        handle.terminate("enough")
    if ending == "CANCELLED":
        handle.cancel("enough")
    pump.finish()
    assert handle.status == ending
    return handle


ENDINGS = ("COMPLETED", "FAILED", "CANCELLED", "TERMINATED")
LATER = st.sampled_from(["messages", "turn", "tick", "hour", "year", "signal", "cancel", "code", "late result"])


@few
@given(ending=st.sampled_from(ENDINGS), later=st.lists(LATER, min_size=1, max_size=6))
def test_a_final_state_never_changes_by_itself(ending: str, later: list[str]) -> None:
    clear_tables()
    ran.clear()
    with Pump() as pump:
        handle = end(pump, ending)
        before, ran_before = everything(handle), list(ran)
        for what in later:
            happen(pump, handle, what)
            assert everything(handle) == before, what
        assert ran == ran_before
        assert handle.status == ending


def everything(handle: Any) -> list[Any]:
    """All there is of it in the database."""
    own = {"instance_id": handle.id}
    return [
        list(WorkflowInstance.objects.filter(pk=handle.id).values()),
        list(StepResult.objects.filter(**own).order_by("pk").values()),
        list(Message.objects.filter(**own).order_by("pk").values()),
    ]


def happen(pump: Pump, handle: Any, what: str) -> None:
    if what == "messages":
        for hint in list(pump.sent):
            pump.deliver(hint)
    elif what == "turn":
        pump.advance(UUID(handle.id))
        pump.drain()
    elif what == "tick":
        pump.tick()
    elif what in ("hour", "year"):
        pump.advance_time(days=365 if what == "year" else 1 / 24)
    elif what == "signal":
        with pytest.raises(InstanceClosed):
            go.send(handle, 1)
    elif what == "cancel":
        assert handle.cancel("too late") == handle.status
        assert handle.terminate("too late") == handle.status
    elif what == "code":
        release(NAME, other_body)
        pump.advance_time(seconds=60)
    elif what == "late result":
        claim_everything(pump, handle)


def claim_everything(pump: Pump, handle: Any) -> None:
    """No step of it can be claimed any more, whoever asks."""
    for row in StepResult.objects.filter(instance_id=handle.id):
        claimed = runtime.current().store.claim(
            row.pk, token="late", lease_id=None, pid=1, now=pump.now, close_at=None, look_at=None
        )
        assert claimed is None


@pytest.mark.parametrize("ending", ENDINGS)
def test_each_final_state_is_one(pump: Pump, ending: str) -> None:
    handle = end(pump, ending)
    assert handle.status in transitions.FINAL_STATES
    assert handle._row().finished_at is not None
