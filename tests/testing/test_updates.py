"""Queries and updates where no worker runs: under the testing kit and under `task_always_eager`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.db import transaction

from durable_celery import Signal, UpdateRejected, UsageError, Workflow, query, step, update, workflow
from durable_celery.celery.current_app import current_app
from durable_celery.testing import Harness

done = Signal("kit.done")


@step(name="kit.tell")
def tell(total: int) -> int:
    return total


@workflow(name="kit.tallies")
def tallies() -> Workflow[int]:
    totals = [0]

    def add(number: int) -> int:
        totals[0] += number
        return totals[0]

    def positive(number: int) -> None:
        if number < 0:
            raise ValueError("negative")

    update("add", add, positive)
    query("total", lambda: totals[0])
    yield from done.wait(timeout=3600)
    return (yield from tell(totals[0]))


@pytest.fixture
def eager(transactional_db: None) -> Iterator[None]:
    conf = current_app().conf
    conf.task_always_eager = True
    yield
    conf.task_always_eager = False


def steered(handle: Any) -> None:
    assert handle.query("total") == 0
    assert handle.update("add", 2) == 2
    assert handle.update("add", 3, timeout=5, update_id="mine") == 5
    assert handle.update("add", 3, timeout=5, update_id="mine") == 5
    with pytest.raises(UpdateRejected, match="ValueError: negative"):
        handle.update("add", -1)
    assert handle.query("total") == 5
    done.send(handle)
    assert handle.result(timeout=5) == 5


@pytest.mark.django_db
def test_a_test_that_waits_for_an_update_gets_its_answer(durable: Harness) -> None:
    run = durable.start(tallies)
    steered_by_the_kit = run.handle
    assert steered_by_the_kit.update("add", 2) == 2
    assert steered_by_the_kit.query("total") == 2
    with pytest.raises(UpdateRejected, match="ValueError: negative"):
        steered_by_the_kit.update("add", -1)
    with transaction.atomic():
        update_id = steered_by_the_kit.update("add", 3, wait=False)
        with pytest.raises(UsageError, match=r"inside atomic\(\)"):
            steered_by_the_kit.update("add", 3)
        assert steered_by_the_kit.query("total") == 2
    assert steered_by_the_kit.update("add", 3, update_id=update_id) == 5
    durable.signal(run, done)
    durable.finish(run)
    assert run.result == 5


@pytest.mark.engine
def test_an_update_is_answered_at_once_where_tasks_are_eager(eager: None) -> None:
    steered(tallies.start())
