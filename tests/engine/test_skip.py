"""skip: what it does to an open step or a FAILED instance, what it refuses, and that nothing runs twice."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from django.db import transaction

from django_app.models import StepAttempt
from durable_celery import (
    StepFailed,
    Workflow,
    gather,
    get_handle,
)
from durable_celery.engine import turns
from durable_celery.errors import BadValue, InstanceNotFound, NotRetryable, StepClosed
from tests.engine.repair_steps import (
    again,
    broken,
    clean,  # noqa: F401
    do,
    go,
    meanwhile,
    outside,
    ran,
    states,
    three,
    undo,
    version,
)
from tests.pump import Pump

pytestmark = pytest.mark.engine


# -- skip: an open step ------------------------------------------------------------------------------------------------


def waits_outside() -> Workflow[Any]:
    first = yield from outside()
    return first, (yield from do("b"))


def test_a_step_handed_to_the_outside_is_skipped(pump: Pump) -> None:
    handle = version(waits_outside).start()
    pump.drain()
    handle.skip("1", {"by": "hand"})
    pump.finish()
    assert handle.result(timeout=0) == ({"by": "hand"}, "B")


def test_a_step_in_the_queue_is_skipped_and_never_runs(pump: Pump) -> None:
    handle = version(waits_outside).start()
    turns.advance(UUID(handle.id))
    assert states(handle) == {"1": "SCHEDULED"}
    handle.skip("1")
    pump.finish()
    assert handle.result(timeout=0) == (None, "B")
    assert handle.history()[0].attempts == 0


def test_a_step_between_two_attempts_is_skipped(pump: Pump) -> None:
    def body() -> Workflow[Any]:
        return (yield from again("a"))

    broken.add("a")
    handle = version(body).start()
    pump.drain()
    assert states(handle) == {"1": "RETRYING"}
    handle.skip("1", 7)
    pump.drain()
    assert handle.result(timeout=0) == 7
    assert ran == ["a"]


def test_the_late_result_of_a_skipped_attempt_is_superseded(pump: Pump) -> None:
    def body() -> Workflow[Any]:
        return (yield from do("a"))

    handle = version(body).start()
    meanwhile["a"] = lambda: handle.skip("1", "by hand")
    pump.finish()
    assert handle.result(timeout=0) == "by hand"
    late = StepAttempt.objects.get()
    assert (late.outcome, late.result) == ("superseded", '"A"')


def test_what_is_not_open_is_not_skipped(pump: Pump) -> None:
    def body() -> Workflow[Any]:
        yield from do("a")
        yield from go.wait(timeout=60)

    handle = version(body).start()
    pump.drain()
    with pytest.raises(StepClosed, match="is SUCCEEDED already"):
        handle.skip("1", 1)
    with pytest.raises(BadValue, match=r"the signal repair.go, SCHEDULED; expected a step"):
        handle.skip("2", 1)
    with pytest.raises(BadValue, match="has nothing at position '3'"):
        handle.skip("3", 1)
    for wrong in ("", "0", "x", "1.", "1..2", 1, "1!1"):
        with pytest.raises(BadValue, match="is not allowed, expected one such as '3' or"):
            handle.skip(wrong, 1)
    pump.finish()
    with pytest.raises(InstanceNotFound):
        get_handle("00000000-0000-7000-8000-000000000001").skip("1")


def test_a_result_that_cannot_be_kept_is_refused_and_nothing_changes(pump: Pump) -> None:
    handle = version(waits_outside).start()
    pump.drain()
    with pytest.raises(Exception, match="result"):
        handle.skip("1", object())
    assert states(handle) == {"1": "EXTERNAL"}


def test_a_rolled_back_skip_has_never_been(pump: Pump) -> None:
    handle = version(waits_outside).start()
    pump.drain()
    with transaction.atomic():
        handle.skip("1", 1)
        transaction.set_rollback(True)
    pump.drain()
    assert states(handle) == {"1": "EXTERNAL"}


# -- skip: a FAILED instance -------------------------------------------------------------------------------------------


def test_the_last_failure_is_replaced_by_a_result(pump: Pump) -> None:
    broken.add("b")
    handle = version(three).using(key="repair-1").start()
    pump.finish()
    assert handle.status == "FAILED"
    handle.skip("2", "by hand")
    assert handle.status == "RUNNING"
    pump.finish()
    assert handle.result(timeout=0) == ("A", "by hand", "C")
    assert ran == ["a", "b", "c"]


def test_beside_the_skipped_failure_others_start_afresh(pump: Pump) -> None:
    def body() -> Workflow[Any]:
        return (yield from gather(do("a"), do("b"), do("c")))

    broken.update({"a", "b"})
    handle = version(body).start()
    pump.finish()
    assert handle.status == "FAILED"
    broken.clear()
    handle.skip("1.0", "by hand")
    pump.drain()  # at once: no tick has to bring them back
    assert handle.result(timeout=0) == ("by hand", "B", "C")
    assert sorted(ran) == ["a", "b", "b", "c"]


def test_a_failure_that_is_not_the_last_is_not_skipped(pump: Pump) -> None:
    def body() -> Workflow[Any]:
        try:
            yield from do("a")
        except StepFailed:
            yield from do("b")

    broken.update({"a", "b"})
    handle = version(body).start()
    pump.finish()
    with pytest.raises(NotRetryable, match=r"is not the last failure, the body went on after it.*fork\('1'\)"):
        handle.skip("1", 1)
    with pytest.raises(BadValue, match="has nothing at position '9'"):
        handle.skip("9", 1)
    assert handle.status == "FAILED"


def test_the_rules_of_retry_hold(pump: Pump) -> None:
    def body() -> Workflow[Any]:
        yield from do("a").compensate_with(undo)
        yield from do("b")

    broken.add("b")
    handle = version(body).start()
    pump.finish()
    assert ran == ["a", "b", "undo A"]
    for act in (lambda: handle.skip("2", 1), lambda: handle.retry_step("2")):
        with pytest.raises(NotRetryable, match="was compensated"):
            act()
    assert handle.status == "FAILED"


def test_a_finished_instance_is_not_repaired(pump: Pump) -> None:
    handle = version(three).start()
    pump.finish()
    with pytest.raises(NotRetryable, match=r"is COMPLETED.*fork\('2'\)"):
        handle.skip("2", 1)
    with pytest.raises(NotRetryable, match="it has its result"):
        handle.retry_step("2")
