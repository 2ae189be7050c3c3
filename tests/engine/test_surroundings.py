"""What was current at the start is current in each turn and each attempt, and nowhere else."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from datetime import timedelta, timezone
from typing import Any
from uuid import UUID

import pytest
from django.db import connection
from django.utils import timezone as django_timezone
from django.utils import translation

from django_app.models import WorkflowInstance
from durable_celery import (
    NotSerializable,
    PayloadTooLarge,
    RetryPolicy,
    StepFailed,
    Workflow,
    register_context,
    sleep,
    step,
    surroundings,
    workflow,
)
from durable_celery.errors import BadValue
from tests.project.testapp.models import Effect
from tests.pump import Pump

pytestmark = pytest.mark.django_db(transaction=True)

QUICK = RetryPolicy(initial_interval=0.1, jitter=False, maximum_attempts=2)
TENANT = UUID(int=7)
tenant: ContextVar[UUID | None] = ContextVar("tenant", default=None)
seen: list[tuple[str, Any]] = []


@pytest.fixture(autouse=True)
def _as_it_was() -> Iterator[None]:
    seen.clear()
    before = dict(surroundings._carriers)
    yield
    surroundings._carriers.clear()
    surroundings._carriers.update(before)
    tenant.set(None)


def look(where: str) -> None:
    seen.append((where, (translation.get_language(), django_timezone.get_current_timezone_name(), tenant.get())))


@contextlib.contextmanager
def as_tenant(value: UUID) -> Iterator[None]:
    token = tenant.set(value)
    try:
        yield
    finally:
        tenant.reset(token)


@pytest.fixture
def carried() -> None:
    register_context("tenant", tenant.get, as_tenant)


@step(name="surroundings.attempt", retry=QUICK)
def attempt(fails: bool = False) -> None:
    look("attempt")
    if fails:
        raise RuntimeError("no luck")


@step(name="surroundings.atomic", atomic=True)
def in_transaction() -> None:
    look("atomic")


@step(name="surroundings.undo")
def undo(result: None) -> None:
    look("compensation")


@step(name="surroundings.starter")
def starter() -> str:
    return short.start().id


@workflow(name="surroundings.short")
def short() -> Workflow[None]:
    look("turn")
    yield from attempt()


@workflow(name="surroundings.long")
def long() -> Workflow[None]:
    look("turn")
    yield from in_transaction().compensate_with(undo)
    yield from sleep(days=3)
    yield from attempt(fails=True)


@workflow(name="surroundings.starting")
def starting() -> Workflow[str]:
    return (yield from starter())


EVERYWHERE = ("de", "Asia/Tokyo", TENANT)


def start_there(definition: Any) -> Any:
    with translation.override("de"), django_timezone.override("Asia/Tokyo"), as_tenant(TENANT):
        return definition.start()


def test_turns_attempts_and_compensations_have_what_was_current_at_the_start(pump: Pump, carried: None) -> None:
    handle = start_there(long)
    pump.finish()
    assert handle.status == "FAILED"
    assert dict(seen) == dict.fromkeys(("turn", "attempt", "atomic", "compensation"), EVERYWHERE)
    assert [where for where, _ in seen].count("attempt") == 2
    look("outside")
    assert seen[-1][1] == (translation.get_language(), "UTC", None)


def test_instances_of_one_worker_keep_theirs_apart(pump: Pump, carried: None) -> None:
    with translation.override("fr"):
        short.start()
    start_there(short)
    pump.finish()
    expected = [("fr", "UTC", None), EVERYWHERE]
    assert [what for where, what in seen if where == "attempt"] == expected


def test_a_start_from_a_step_hands_it_on(pump: Pump, carried: None) -> None:
    start_there(starting)
    pump.finish()
    assert ("attempt", EVERYWHERE) in seen


def test_no_language_at_all_and_a_fixed_offset_are_carried_too(pump: Pump) -> None:
    with translation.override(None), django_timezone.override(timezone(timedelta(hours=-3, minutes=-30))):
        short.start()
    pump.finish()
    assert {what[1] for _, what in seen} == {"UTC-03:30"}


def test_a_start_that_many_share_captures_once_for_each(pump: Pump, carried: None) -> None:
    with as_tenant(TENANT):
        short.start_many([(), ()])
    pump.finish()
    assert {what[2] for _, what in seen} == {TENANT}


def refusing(times: int) -> Callable[[Any], Any]:
    left = [times]

    @contextlib.contextmanager
    def restore(value: Any) -> Iterator[None]:
        if left[0]:
            left[0] -= 1
            raise LookupError(f"no tenant {value}")
        yield

    return restore


def test_an_attempt_without_its_context_does_not_run_and_is_retried(pump: Pump) -> None:
    handle = short.start()
    pump.deliver(pump.queue[0])
    assert seen.pop()[0] == "turn"
    WorkflowInstance.objects.update(context={"tenant": 7})
    register_context("tenant", lambda: None, refusing(1))
    pump.deliver(pump.queue[0])
    assert seen == []
    error = handle.history()[0].error
    assert error is not None
    assert error.brief == "LookupError: no tenant 7"
    pump.finish()
    assert handle.status == "COMPLETED"


def test_a_turn_without_its_context_does_not_run_and_blocks(pump: Pump) -> None:
    register_context("tenant", lambda: 7, refusing(100))
    handle = short.start()
    pump.finish()
    assert seen == []
    assert handle.status == "BLOCKED"
    assert "its context cannot be restored: LookupError: no tenant 7" in handle.waiting_for


@step(name="surroundings.count", retry=None)
def count() -> int:
    effects: int = Effect.objects.count()
    return effects


@workflow(name="surroundings.counting", fails_on=StepFailed)
def counting() -> Workflow[int]:
    return (yield from count())


def test_a_failure_in_taking_it_away_changes_nothing(pump: Pump, caplog: pytest.LogCaptureFixture) -> None:
    @contextlib.contextmanager
    def restore(value: int) -> Iterator[None]:
        yield
        raise RuntimeError("cannot leave")

    register_context("tenant", lambda: 7, restore)
    handle = counting.start()
    pump.finish()
    assert handle.result(timeout=0) == 0
    assert "cannot leave" in caplog.text


def test_a_name_that_nobody_registers_any_more_is_left_out(pump: Pump, carried: None) -> None:
    handle = start_there(short)
    del surroundings._carriers["tenant"]
    pump.finish()
    assert handle.status == "COMPLETED"
    assert {what for _, what in seen} == {("de", "Asia/Tokyo", None)}


def test_what_cannot_be_stored_or_is_too_long_is_refused_at_the_start() -> None:
    register_context("tenant", object, as_tenant)
    with pytest.raises(NotSerializable, match="context 'tenant'"):
        short.start()
    register_context("tenant", lambda: "x" * 20_000, as_tenant)
    with pytest.raises(PayloadTooLarge, match="context 'tenant'"):
        short.start()
    assert not WorkflowInstance.objects.exists()


@pytest.mark.parametrize(("name", "given", "message"), [("", print, "needs a name"), ("x", 7, "restore=7")])
def test_a_bad_registration_is_refused(name: str, given: Any, message: str) -> None:
    with pytest.raises(BadValue, match=message):
        register_context(name, print, given)


def test_capturing_language_and_zone_makes_no_query(django_assert_num_queries: Any) -> None:
    with django_assert_num_queries(0, connection=connection):
        found = surroundings.captured()
    assert set(found) == {"language", "time zone"}
