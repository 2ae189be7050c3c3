"""Workflows that the tests of children yield."""

from __future__ import annotations

from durable_celery import Workflow, workflow
from tests.core.driver import a


@workflow(name="core.child", execution_timeout=60, queue="slow", key=lambda number: f"child-{number}")
def child(number: int) -> Workflow[str]:
    return (yield from a(number))


@workflow(name="core.other")
def other() -> Workflow[int]:
    return (yield from a())
