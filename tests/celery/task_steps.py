"""Steps and workers for the tests of the tasks."""

from __future__ import annotations

from durable_celery import step


@step(name="tests.celery.plain")
def plain(value):
    return value
