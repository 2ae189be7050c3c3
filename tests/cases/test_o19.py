"""O-19: messages hold ids, so they stay as small as they are however wide and deep a fan-out is."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from celery import current_app
from django.db import connection

from django_app.models import StepResult
from durable_celery import Workflow, gather, runtime, step, workflow
from durable_celery.celery.transport import CeleryTransport
from durable_celery.ports import Dispatch
from tests.pump import Pump, counted

QUEUE = "tests-o19"
INPUT = "x" * 10_000
ran: list[int] = []


@step(queue=QUEUE)
def take(number: int, given: str) -> int:
    ran.append(len(given))
    return number


@workflow
def wide_then_deep(width: int, depth: int) -> Workflow[int]:
    values = yield from gather(*(take(number, INPUT) for number in range(width)))
    nested = yield from layer(depth)
    return sum(values) + flat(nested)


def layer(depth: int) -> Any:
    """Ten members: nine steps and, to that depth, another layer of ten."""
    last = layer(depth - 1) if depth > 1 else take(1, INPUT)
    return gather(*(take(1, INPUT) for _ in range(9)), last)


def flat(value: Any) -> int:
    return sum(map(flat, value)) if isinstance(value, tuple) else int(value)


@pytest.fixture
def published(pump: Pump, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Everything also goes to the broker of this run; gives the size of each message there, headers and all."""
    patient = replace(runtime.current().settings, publish_timeout=timedelta(minutes=1))  # a thousand in one go
    transport = CeleryTransport(patient)
    dispatch = pump.dispatch

    def both(dispatches: Sequence[Dispatch], now: datetime) -> int:
        assert transport.dispatch(dispatches, now) == len(dispatches)
        return dispatch(dispatches, now)

    monkeypatch.setattr(pump, "dispatch", both)

    def sizes() -> list[int]:
        found = []
        with current_app.connection_for_read() as broker:
            queue = broker.SimpleQueue(QUEUE)
            while True:
                try:
                    message = queue.get(timeout=0.5)
                except queue.Empty:
                    break
                found.append(size_of(message))
                message.ack()
            queue.close()
        return found

    sizes()
    return sizes


def size_of(message: Any) -> int:
    body = message.body if isinstance(message.body, bytes) else str(message.body).encode()
    return len(body) + len(json.dumps([message.headers, message.properties], default=str))


def test_o19_no_message_reaches_two_kilobytes_and_none_grows_with_width_or_depth(pump: Pump, published: Any) -> None:
    ran.clear()
    handle = wide_then_deep.start(10, 5)
    pump.finish()
    assert handle.result(timeout=0) == sum(range(10)) + 9 * 5 + 1
    assert ran == [10_000] * (10 + 46)
    deep = published()
    assert len(deep) == 10 + 46

    wide_then_deep.start(1000, 5)
    pump.deliver(pump.ready()[-1])
    wide = published()
    assert len(wide) == 1000
    assert max(deep + wide) < 2000
    assert abs(max(wide) - max(deep)) <= 16  # ids have more digits


def test_o19_a_thousand_steps_are_scheduled_in_a_few_statements(pump: Pump) -> None:
    few, many = statements_to_schedule(pump, 10), statements_to_schedule(pump, 1000)
    inserts = [sql for sql in many if sql.upper().startswith("INSERT")]
    others = len(many) - len(inserts)
    # Ten megabytes of arguments go in a few pieces; Django 5 sends at most 999 values at once to SQLite.
    most = connection.features.max_query_params
    assert len(inserts) <= (4 if most is None else 4 + 1000 // (most // len(StepResult._meta.concrete_fields)))
    assert others <= 6, many
    assert others - len([sql for sql in few if not sql.upper().startswith("INSERT")]) <= 1


def statements_to_schedule(pump: Pump, width: int) -> list[str]:
    """Of the turn that fans out, alone."""
    handle = wide_then_deep.start(width, 1)
    hint = pump.ready()[-1]
    with counted() as sent:
        pump.deliver(hint)
    assert StepResult.objects.filter(instance_id=handle.id, kind="step", state="SCHEDULED").count() == width
    pump.queue.clear()
    return sent


@pytest.mark.nightly
def test_o19_a_thousand_steps_are_dispatched_within_ten_seconds(pump: Pump, published: Any) -> None:
    import time

    wide_then_deep.start(1000, 1)
    hint = pump.ready()[-1]
    began = time.monotonic()
    pump.deliver(hint)
    assert time.monotonic() - began < 10
    assert len(published()) == 1000
