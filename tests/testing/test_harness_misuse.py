"""The kit used as it cannot work: it says so at once, and never waits for what cannot come."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any
from unittest.mock import call
from zoneinfo import ZoneInfo

import pytest
from celery import shared_task
from django.db import transaction
from django.test import TestCase

from durable_celery import (
    InstanceNotFound,
    UsageError,
    Workflow,
    sleep,
    step,
    workflow,
)
from durable_celery.testing import Harness, Run
from tests.testing.harness_workflows import CarrierDown, approved, fulfil, ship

NOON = datetime(2026, 3, 28, 12, tzinfo=ZoneInfo("Europe/Berlin"))  # the clocks go forward in the night


@shared_task(name="kit.no_step")
def plain() -> None: ...


@workflow(name="kit.a_day")
def a_day() -> Workflow[None]:
    yield from sleep(days=1)


# -- a kit that is not open --------------------------------------------------------------------------------------------

CALLS = {
    "run": lambda kit: kit.run(fulfil, 7),
    "start": lambda kit: kit.start(fulfil, 7),
    "signal": lambda kit: kit.signal("x", approved, "ana"),
    "run_until_idle": lambda kit: kit.run_until_idle(),
    "advance_time": lambda kit: kit.advance_time(days=1),
    "finish": lambda kit: kit.finish("x"),
    "mock": lambda kit: kit.mock(ship),
    "crash_everywhere": lambda kit: kit.crash_everywhere(fulfil, 7),
}


@pytest.mark.django_db
@pytest.mark.parametrize("name", CALLS)
def test_outside_its_block_each_call_says_how_it_is_opened(name: str) -> None:
    never_opened, closed = Harness(), Harness()
    with closed:
        pass
    for kit in (never_opened, closed):
        with pytest.raises(
            UsageError, match=rf"durable\.{name}\(\) outside its block: .*'with Harness\(\) as durable:'"
        ):
            CALLS[name](kit)


@pytest.mark.parametrize("name", CALLS)
def test_a_kit_with_another_one_open_inside_is_refused_till_that_ends(durable: Harness, name: str) -> None:
    with Harness(), pytest.raises(UsageError, match=rf"durable\.{name}\(\) while another kit is open inside"):
        CALLS[name](durable)
    assert durable.run(fulfil, 7).result == "parcel 7"


def test_a_kit_opens_once_at_a_time_and_again_later(durable: Harness) -> None:
    with pytest.raises(UsageError, match="open already"):
        durable.__enter__()
    kit = Harness()
    for order in (7, 8):
        with kit:
            assert kit.run(fulfil, order).result == f"parcel {order}"


# -- bad values --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("now", [NOON.replace(tzinfo=None), "2026-01-01", NOON.date()])
def test_the_clock_begins_at_an_aware_datetime(now: Any) -> None:
    with pytest.raises(ValueError, match=r"now=.* expected a datetime with a time zone"):
        Harness(now=now)


@pytest.mark.durable(now=NOON)
def test_a_day_is_24_hours_wherever_the_clock_begins(durable: Harness) -> None:
    assert durable.now.tzinfo is timezone.utc
    began = durable.now
    assert durable.run(a_day).status == "COMPLETED"
    durable.advance_time(days=1)
    assert durable.now - began == timedelta(days=2)


@pytest.mark.parametrize(
    ("args", "kwargs"),
    [
        (("3",), {}),
        ((None,), {}),
        ((float("nan"),), {}),
        ((float("inf"),), {}),
        ((), {"day": 3}),
        ((), {"days": 10**7}),
    ],
)
def test_time_advances_by_a_duration(durable: Harness, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    before = durable.now
    with pytest.raises(ValueError, match=r"advance_time\(.*expected seconds, a timedelta, or days="):
        durable.advance_time(*args, **kwargs)
    assert durable.now == before


@pytest.mark.parametrize("target", [ship, "kit.fulfil", None, print])
def test_what_is_no_workflow_is_not_run(durable: Harness, target: Any) -> None:
    with pytest.raises(UsageError, match=r"takes a workflow and its arguments.*step\.call"):
        durable.run(target)


def test_a_canvas_has_its_arguments_already(durable: Harness) -> None:
    assert durable.run(plain.s()).status == "COMPLETED"
    with pytest.raises(UsageError, match=r"a Celery signature such as task\.s\(\.\.\.\) alone"):
        durable.start(plain.s(), 1)  # type: ignore[call-overload]


@pytest.mark.parametrize("side_effect", [5, True, 2.5])
def test_a_side_effect_is_checked_where_it_is_given(durable: Harness, side_effect: object) -> None:
    with pytest.raises(ValueError, match=r"side_effect=.*return_value="):
        durable.mock(ship, side_effect=side_effect)
    assert durable.mock(ship, side_effect=CarrierDown).calls == []


# -- an instance that is not there -------------------------------------------------------------------------------------


@pytest.mark.parametrize("target", ["nobody", None, ship, 7])
def test_a_target_that_is_no_instance_is_named(durable: Harness, target: Any) -> None:
    for use in (durable.finish, durable.run_of, lambda it: durable.signal(it, approved, "ana")):
        with pytest.raises(
            InstanceNotFound, match=r"no workflow instance nobody|is no instance id, handle or instance"
        ):
            use(target)


def test_a_run_that_was_rolled_back_says_so(durable: Harness) -> None:
    with transaction.atomic():
        run = durable.start(fulfil, 7)
        transaction.set_rollback(True)
    assert "its start was rolled back" in repr(run)
    assert run.steps == []
    looks = [
        lambda: run.status,
        lambda: run.result,
        lambda: run.error,
        lambda: run.history,
        lambda: durable.finish(run),
    ]
    for look in looks:
        with pytest.raises(InstanceNotFound, match="its start was rolled back"):
            look()


# -- code that waits ---------------------------------------------------------------------------------------------------


@step(name="kit.orders_and_waits")
def orders_and_waits() -> str:
    return fulfil.start(8).result(timeout=5)


@workflow(name="kit.outer")
def outer() -> Workflow[str]:
    return (yield from orders_and_waits())


def test_tested_code_that_waits_for_a_result_gets_it(durable: Harness) -> None:
    assert fulfil.start(7).result() == "parcel 7"
    assert fulfil.start(9).result(timeout=5) == "parcel 9"
    assert durable.run(outer).result == "parcel 8"


def test_a_wait_for_what_no_clock_brings_ends_at_once(durable: Harness) -> None:
    handle = fulfil.start(7, by_hand=True)
    with pytest.raises(UsageError, match=r"waits for signal 'approved'.*for ever.*durable\.finish\(run\)"):
        handle.result()
    with pytest.raises(TimeoutError, match="signal 'approved'"):
        handle.result(timeout=0)
    handle.pause()
    with pytest.raises(UsageError, match=r"update 'add' of instance .*for ever"):
        handle.update("add")
    handle.resume()
    durable.signal(handle, approved, "ana")
    assert handle.result() == "parcel 7"


# -- unittest ----------------------------------------------------------------------------------------------------------


class TestSharedRun(TestCase):
    """Django copies for each test what ``setUpTestData`` leaves in the class."""

    run_before: Run[str]

    @classmethod
    def setUpTestData(cls) -> None:
        with Harness() as kit:
            kit.mock(ship, return_value="by hand")
            cls.run_before = kit.run(fulfil, 7)

    def test_a_run_and_its_handle_can_be_shared_by_the_tests_of_a_class(self) -> None:
        assert self.run_before.result == "by hand"
        assert self.run_before.steps == ["kit.charge", "kit.ship"]
        with Harness() as kit:
            shipping = kit.mock(ship, return_value="parcel")
            assert kit.run(fulfil, 8).result == "parcel"
        assert shipping.calls == [call(8)]
