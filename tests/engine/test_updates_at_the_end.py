"""An update about the time its run ends: refused, answered with the last turn, or kept by a retry."""

from __future__ import annotations

from typing import Any

import pytest

from django_app.models import Message
from durable_celery import InstanceClosed, Signal, Workflow, WorkflowFailed, step, update, workflow
from tests.pump import Pump

end = Signal("end")


def noted(seen: list[Any], value: Any) -> int:
    seen.append(value)
    return len(seen)


def test_one_that_ends_before_it_takes_it_in_closes_on_the_sender_and_no_retry_runs_it(pump: Pump) -> None:
    @workflow(name="updates.closing")
    def closing() -> Workflow[None]:
        update("set", lambda value: value)
        yield from end.wait(warn_after=3600)
        raise WorkflowFailed("as asked")

    handle = closing.start()
    pump.drain()
    handle.signal("end")
    update_id = handle.update("set", 1, wait=False)
    pump.drain()
    assert (handle.status, Message.objects.count()) == ("FAILED", 2)
    with pytest.raises(InstanceClosed, match=r"ended \(FAILED\) before it took update 'set' in"):
        handle.update("set", 1, update_id=update_id, timeout=0)
    assert list(Message.objects.values_list("kind", flat=True)) == ["signal"]


def test_an_update_committed_with_the_turn_that_ends_the_instance_is_answered(pump: Pump) -> None:
    @workflow(name="updates.last")
    def last() -> Workflow[Any]:
        seen: list[Any] = []
        update("set", lambda value: noted(seen, value))
        yield from end.wait(warn_after=3600)
        return seen

    handle = last.start()
    pump.drain()
    update_id = handle.update("set", 1, wait=False)
    handle.signal("end")
    pump.drain()
    assert handle.result(timeout=0) == [1]
    assert handle.update("set", update_id=update_id, timeout=0) == 1


def test_a_retry_that_takes_back_the_turn_keeps_the_answer_it_gave(pump: Pump) -> None:
    checked: list[int] = []

    @workflow(name="updates.taken_back")
    def taken_back() -> Workflow[Any]:
        seen: list[Any] = []
        update("set", lambda value: noted(seen, value), checked.append)
        yield from end.wait(warn_after=3600)
        try:
            yield from flaky()
        except Exception:
            raise WorkflowFailed("flaky") from None
        return seen

    @step(name="updates.flaky", retry=None)
    def flaky() -> None:
        if not failed:
            failed.append(True)
            raise LookupError("the first time")

    failed: list[bool] = []
    handle = taken_back.start()
    pump.drain()
    handle.signal("end")
    pump.deliver(pump.ready()[0])
    update_id = handle.update("set", 5, wait=False)
    pump.queue = [hint for hint in pump.queue if hint.step is not None]  # one turn takes in both
    pump.drain()
    assert handle.status == "FAILED"
    assert handle.update("set", update_id=update_id, timeout=0) == 1
    handle.retry()
    pump.advance_time(5)
    assert handle.result(timeout=0) == [5]
    assert handle.update("set", update_id=update_id, timeout=0) == 1
    assert checked == [5]
