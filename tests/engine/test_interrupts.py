"""A body that raises what would stop the process: its own doing, unless somebody may have meant the process."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from celery.exceptions import WorkerShutdown, WorkerTerminate

from django_app.models import StepResult
from durable_celery import RetryPolicy, Workflow, current_step, step, workflow
from durable_celery.engine.execution import NoGuard, stopped_by
from tests.celery.existing_parts import task
from tests.pump import Pump

ERRORS: dict[str, BaseException] = {
    "interrupt": KeyboardInterrupt(),
    "left": GeneratorExit(),
    "shutdown": WorkerShutdown(0),
    "terminate": WorkerTerminate(1),
    "exit": SystemExit(3),
    "cancelled": asyncio.CancelledError(),
}
raised: list[str] = []


class InPool(NoGuard):
    """As in a child of a prefork pool."""

    own_process = False


@step(retry=RetryPolicy(initial_interval=1, maximum_attempts=2))
def raises_once(name: str) -> int:
    if current_step().attempt == 1:
        raise ERRORS[name]
    return current_step().attempt


@task(autoretry_for=(), max_retries=0)
def raises(name: str) -> None:
    raised.append(name)
    raise ERRORS[name]


@workflow
def interrupted(name: str) -> Workflow[int]:
    return (yield from raises_once(name))


@workflow
def interrupted_task(name: str) -> Workflow[Any]:
    return (yield raises.s(name))


@pytest.mark.parametrize("name", ERRORS)
def test_in_a_pools_process_it_is_an_error_of_the_attempt(name: str, pump: Pump) -> None:
    pump.guard = InPool()
    handle = interrupted.start(name)
    pump.advance_time(3)
    assert (handle.status, handle.result(timeout=0)) == ("COMPLETED", 2)
    row = StepResult.objects.get()
    assert (row.failures, row.deaths) == (1, 0)


@pytest.mark.parametrize("name", ERRORS)
def test_so_it_is_of_an_existing_task(name: str, pump: Pump) -> None:
    raised.clear()
    pump.guard = InPool()
    handle = interrupted_task.start(name)
    pump.advance_time(3)
    assert (handle.status, raised) == ("FAILED", [name])


@pytest.mark.parametrize("name", ["left", "exit", "cancelled"])
def test_what_no_signal_raises_never_stops_a_process(name: str, pump: Pump) -> None:
    handle = interrupted.start(name)
    pump.advance_time(3)
    assert handle.status == "COMPLETED"


def test_the_main_thread_of_a_process_of_its_own_is_stopped_and_no_other_thread() -> None:
    stop = ERRORS["interrupt"]
    assert stopped_by(stop, NoGuard())
    with ThreadPoolExecutor(1) as pool:
        assert not pool.submit(stopped_by, stop, NoGuard()).result()


def test_a_pools_process_that_is_told_to_end_is_stopped_all_the_same() -> None:
    assert stopped_by(SystemExit(-(256 - 15)), InPool())
