"""A broker that is slow costs whoever starts something PUBLISH_TIMEOUT in total, however much is started at once."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest

from django_app.models import WorkflowInstance
from durable_celery import runtime, workflow
from durable_celery.celery.transport import CeleryTransport
from durable_celery.engine import children
from durable_celery.ports import Wake

pytestmark = pytest.mark.django_db(transaction=True)

TIMEOUT = 0.5  # seconds
EACH = 0.2  # seconds the broker takes for a message
MOST = TIMEOUT + 2 * EACH  # of a call: a message is not broken off when the time runs out; the rest is the machine
MANY = 12  # of which all would take 2.4 s


@workflow(name="in_time.started")
def started(number: int) -> int:
    return number


@pytest.fixture
def sent(new_app: Callable[..., Any]) -> Iterator[list[Any]]:
    """What a slow broker was given."""
    app, given = new_app(), []

    def slow(*args: Any, headers: Any, **_: Any) -> None:
        time.sleep(EACH)
        given.append(headers["durable"]["instance"])

    app.send_task = slow
    outer = runtime.current()
    settings = replace(outer.settings, publish_timeout=timedelta(seconds=TIMEOUT))
    with runtime.lent(replace(outer, settings=settings, transport=CeleryTransport(settings, lambda: app))):
        yield given


def timed(call: Callable[[], Any]) -> float:
    began = time.monotonic()
    call()
    return time.monotonic() - began


def test_many_starts_in_one_call(sent: list[str]) -> None:
    took = timed(lambda: started.start_many([(number,) for number in range(MANY)]))
    assert took < MOST
    assert 1 <= len(sent) < MANY
    ids = {str(pk) for pk in WorkflowInstance.objects.values_list("pk", flat=True)}
    assert len(ids) == MANY, "each of them stands, and the tick starts what was not told"
    assert set(sent) < ids


def test_many_instances_woken_by_one_end(sent: list[str]) -> None:
    wakes = [Wake(instance_id=uuid4()) for _ in range(MANY)]
    assert timed(lambda: children.wake(runtime.current(), wakes)) < MOST
    assert sent == [str(wake.instance_id) for wake in wakes[: len(sent)]]
    assert sent


def test_hints_that_wait_longer_than_a_message_may_hold_up_none_of_the_others(sent: list[str]) -> None:
    soon, late = Wake(instance_id=uuid4()), Wake(instance_id=uuid4(), delay=60)
    assert runtime.current().transport.advance_all([late, soon]) == 1
    assert sent == [str(soon.instance_id)]
    assert runtime.current().transport.advance_all([]) == 0
