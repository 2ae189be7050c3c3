"""A charge that is refunded unless the goods are delivered: what a cancel at any moment must not break."""

from __future__ import annotations

import time

from durable_celery import Workflow, step, workflow
from tests.project.testapp.steps import note

CAPTURE, DELIVERY = 0.03, 0.02  # seconds a body takes


@step
def charge(run: str) -> str:
    note(run, "charge")
    time.sleep(CAPTURE)
    return run


@step
def refund(receipt: str | None, run: str = "") -> None:
    note(receipt or run, "refund")


@step
def deliver(run: str) -> str:
    note(run, "deliver")
    time.sleep(DELIVERY)
    return run


@workflow
def purchase(run: str) -> Workflow[str]:
    yield from charge(run).compensate_with(refund(run, run))
    yield from deliver(run)
    return run
