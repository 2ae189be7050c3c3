"""Workflows that go on as new runs."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from django_app.models import WorkflowInstance
from durable_celery import (
    Signal,
    Workflow,
    continue_as_new,
    step,
    workflow,
)
from durable_celery.handle import WorkflowHandle

inc = Signal("inc", int)
stop = Signal("stop", str)
charged: list[tuple[str, int]] = []
seen: list[Any] = []


@pytest.fixture(autouse=True)
def _nothing_yet() -> None:
    charged.clear()
    seen.clear()


@workflow(name="chain.counter")
def counter(total: int, left: int) -> Workflow[int]:
    if not left:
        return total
    value = yield from inc.wait()  # durable: ok
    return (yield from continue_as_new(total + value, left - 1))


@step(name="chain.charge")
def charge(customer: str, month: int) -> None:
    charged.append((customer, month))


@workflow(name="chain.subscription", key=lambda customer, month=1: f"customer-{customer}")
def subscription(customer: str, month: int = 1) -> Workflow[str]:
    """Charges once a month, for ever: a journal of three rows each month, not one that grows for years."""
    yield from charge(customer, month)
    reason = yield from stop.wait(timeout=timedelta(days=30), default="")
    if reason:
        return f"{customer} left after {month} months: {reason}"
    return (yield from continue_as_new(customer, month + 1))


def runs(handle: WorkflowHandle[Any]) -> list[tuple[int, str]]:
    """Number and state of each run of the chain."""
    found = WorkflowInstance.objects.filter(chain_id=handle.id).order_by("run_number")
    return list(found.values_list("run_number", "state"))
