"""The kit: runs, time, mocks, ends and transactions."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Any
from unittest.mock import call

import pytest
from celery import shared_task
from celery.exceptions import SoftTimeLimitExceeded
from django.contrib.auth.models import Group

from durable_celery import (
    ChildFailed,
    CompleteLater,
    Signal,
    StepFailed,
    UsageError,
    Workflow,
    WorkflowBlocked,
    WorkflowCancelled,
    WorkflowFailed,
    sleep,
    workflow,
)
from durable_celery.testing import Harness
from tests.testing.harness_workflows import (
    CarrierDown,
    approved,
    charge,
    fulfil,
    refund,
    ship,
)


def test_a_workflow_runs_to_its_end(durable: Harness) -> None:
    run = durable.run(fulfil, 7)
    assert (run.status, run.result, run.error) == ("COMPLETED", "parcel 7", None)
    assert run.steps == ["kit.charge", "kit.ship"]
    assert [(entry.position, entry.name, entry.state) for entry in run.history] == [
        ("1", "kit.charge", "SUCCEEDED"),
        ("2", "kit.ship", "SUCCEEDED"),
    ]
    assert run.waiting_for == ""
    assert run.id == run.handle.id
    assert run.handle.result(timeout=0) == "parcel 7"


def test_a_refund_follows_when_shipping_fails(durable: Harness) -> None:
    shipping = durable.mock(ship, side_effect=CarrierDown("no vans"))
    began = time.monotonic()
    run = durable.run(fulfil, 7)
    assert time.monotonic() - began < 30  # its five attempts are half a minute apart
    assert run.status == "FAILED"
    assert run.steps == ["kit.charge", "kit.ship", "kit.refund"]
    assert shipping.calls == [call(7)] * 5
    assert isinstance(run.error, WorkflowFailed)
    assert run.error.matches(StepFailed)
    assert "CarrierDown: no vans" in str(run.error)
    assert run.result is None


def test_time_passes_where_it_is_asked_to(durable: Harness) -> None:
    began = durable.now
    run = durable.start(fulfil, 7, by_hand=True)
    assert (run.status, durable.now) == ("WAITING", began)
    assert "signal 'approved'" in run.waiting_for
    durable.run_until_idle()
    durable.advance_time(days=2)
    durable.advance_time(timedelta(hours=23))
    durable.advance_time(3599)
    assert (run.status, durable.now) == ("WAITING", began + timedelta(days=3) - timedelta(seconds=1))
    durable.advance_time(1)
    assert run.status == "FAILED"
    assert run.steps[-1] == "kit.refund"
    assert "no signal 'approved' came within 259200 s" in str(run.error)


@pytest.mark.parametrize("signal", [approved, "approved"])
def test_a_signal_goes_on_at_once(durable: Harness, signal: Signal[str] | str) -> None:
    run = durable.start(fulfil, 7, by_hand=True)
    durable.signal(run, signal, "ana")
    assert run.result == "parcel 7"
    assert run.history[0].scheduled_at == durable.now


def test_a_handle_that_other_code_started_can_be_followed(durable: Harness) -> None:
    handle = fulfil.start(7, by_hand=True)
    run = durable.run_of(handle)
    assert run.status == "PENDING"
    approved.send(fulfil.get(key="order-7"), "ana", signal_id="once")
    durable.signal(handle.id, approved, "bob", signal_id="once")
    durable.finish(handle)
    assert run.result == "parcel 7"
    assert run.steps == ["kit.charge", "kit.ship"]


def test_options_of_a_start_are_kept(durable: Harness) -> None:
    run = durable.run(fulfil.using(key="k-1", start_delay=60), 7)
    assert run.handle.key == "k-1"
    assert run.history[0].scheduled_at == durable.now
    assert "<run of kit.fulfil" in repr(run)


# -- mocks -------------------------------------------------------------------------------------------------------------


def test_a_mock_returns_a_value_that_is_encoded(durable: Harness) -> None:
    shipping = durable.mock("kit.ship", return_value=("a", 1))
    returned: object = durable.run(fulfil, 7).result
    assert returned == ("a", 1)
    assert (shipping.called, shipping.calls) == (True, [call(7)])
    durable.mock(ship, return_value=object())
    run = durable.run(fulfil, 8)
    assert run.status == "FAILED"
    assert "NotSerializable" in str(run.error)


def test_a_mock_gives_one_value_for_each_attempt(durable: Harness) -> None:
    charging = durable.mock(charge, side_effect=[CarrierDown(), "second"])
    refunding = durable.mock(refund)
    durable.mock(ship, side_effect=lambda order_id: f"function {order_id}")
    run = durable.run(fulfil, 7)
    assert run.result == "function 7"
    assert charging.calls == [call(7, amount=20)] * 2
    assert (run.history[0].attempts, run.history[0].result) == (2, "second")
    assert not refunding.called


def test_a_mock_without_values_left_says_so(durable: Harness) -> None:
    durable.mock(charge, side_effect=[CarrierDown()])
    assert "its side_effect has no more values" in str(durable.run(fulfil, 7).error)


def test_a_mock_ends_with_the_kit(durable: Harness) -> None:
    with Harness() as inner:
        inner.mock(ship, return_value="mocked")
        assert inner.run(fulfil, 7).result == "mocked"
    assert durable.run(fulfil, 8).result == "parcel 8"


def test_a_mock_checks_arguments_as_the_step_does(durable: Harness) -> None:
    @workflow(name="kit.wrong_call")
    def wrong_call() -> Workflow[None]:
        yield from ship(1, 2)  # type: ignore[call-arg]

    durable.mock(ship)
    run = durable.run(wrong_call)
    assert run.status == "BLOCKED"
    assert isinstance(run.error, WorkflowBlocked)
    assert "kit.ship" in run.waiting_for


@pytest.mark.parametrize("target", ["kit.nothing", 3, print])
def test_what_cannot_be_mocked_is_refused(durable: Harness, target: object) -> None:
    with pytest.raises(UsageError, match=r"mock\(\) takes|there is no step"):
        durable.mock(target)


def test_a_step_can_be_left_to_the_outside(durable: Harness) -> None:
    durable.mock(ship, side_effect=CompleteLater())
    run = durable.run(fulfil, 7)
    assert run.status == "WAITING"
    assert "completed from outside" in run.waiting_for
    run.handle.complete_step("2", "by carrier")
    durable.run_until_idle()
    assert run.result == "by carrier"


@shared_task(name="kit.pick", autoretry_for=(CarrierDown,), max_retries=2, retry_backoff=False)
def pick(order_id: int) -> str:
    raise AssertionError("not mocked")


@workflow(name="kit.pick_and_ship")
def pick_and_ship(order_id: int) -> Workflow[tuple[str, str]]:
    picked: str = yield pick.s(order_id)
    return picked, (yield from fulfil(order_id))


def test_existing_tasks_and_children_can_be_mocked(durable: Harness) -> None:
    picking = durable.mock(pick, side_effect=[CarrierDown(), "picked"])
    child = durable.mock(fulfil, return_value="by a child")
    assert durable.run(pick_and_ship, 7).result == ("picked", "by a child")
    assert picking.calls == [call(7), call(7)]  # the task's own rules have tried it again
    assert child.calls == [call(7)]


def test_a_child_that_fails_is_a_failed_child(durable: Harness) -> None:
    durable.mock("kit.pick", return_value="picked")
    durable.mock("kit.fulfil", side_effect=CarrierDown("no vans"))
    run = durable.run(pick_and_ship, 7)
    assert isinstance(run.error, WorkflowFailed)
    assert run.error.matches(ChildFailed)
    assert "CarrierDown: no vans" in str(run.error)


def test_a_child_runs_in_the_same_virtual_time(durable: Harness) -> None:
    durable.mock(pick, return_value="picked")
    shipping = durable.mock(ship, side_effect=[CarrierDown(), "late parcel"])
    run = durable.run(pick_and_ship, 7)
    assert run.result == ("picked", "late parcel")
    assert run.steps == ["kit.pick"]  # those of the child are its own
    assert len(shipping.calls) == 2


def test_settings_that_change_in_a_test_hold_for_the_kit(durable: Harness, settings: Any) -> None:
    settings.DURABLE_CELERY = {"STEP_TIMEOUT": 7}
    durable.mock(ship, side_effect=SoftTimeLimitExceeded())
    assert "start_to_close_timeout of 7 s" in str(durable.run(fulfil, 7).error)


# -- ends --------------------------------------------------------------------------------------------------------------


def test_a_cancelled_run_has_its_error(durable: Harness) -> None:
    run = durable.start(fulfil, 7, by_hand=True)
    run.handle.cancel("changed my mind")
    durable.run_until_idle()
    assert isinstance(run.error, WorkflowCancelled)
    assert run.error.reason == "changed my mind"
    assert run.steps == ["kit.charge", "kit.refund"]


def test_a_bug_leaves_the_run_blocked(durable: Harness) -> None:
    @workflow(name="kit.buggy")
    def buggy() -> Workflow[None]:
        yield from sleep(days=1)
        raise ValueError("a bug")

    run = durable.run(buggy)
    assert run.status == "BLOCKED"
    assert "ValueError: a bug" in str(run.error)
    assert run.result is None


def test_a_body_that_writes_to_the_database_is_blocked_and_the_test_goes_on(durable: Harness) -> None:
    @workflow(name="kit.writes")
    def writes() -> Workflow[None]:
        yield from sleep(days=1)
        Group.objects.create(name="in a body")

    run = durable.run(writes)
    assert run.status == "BLOCKED"
    assert "a database query in a workflow body is refused: INSERT INTO" in str(run.error)
    assert not Group.objects.exists()
    assert durable.run(fulfil, 7).result == "parcel 7"


def test_an_endless_loop_is_said_to_be_one(durable: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    @workflow(name="kit.endless")
    def endless() -> Workflow[None]:
        while True:
            yield from sleep(60)

    monkeypatch.setattr("durable_celery.testing.harness.HOPS", 50)
    with pytest.raises(AssertionError, match="sleep in an endless loop"):
        durable.run(endless)


def test_time_does_not_go_back(durable: Harness) -> None:
    with pytest.raises(UsageError, match="cannot go back"):
        durable.advance_time(-1)


# -- transactions ------------------------------------------------------------------------------------------------------


def test_a_transaction_that_commits_needs_no_other_spelling(durable: Harness, transactional_db: None) -> None:
    assert durable.run(fulfil, 7).result == "parcel 7"
