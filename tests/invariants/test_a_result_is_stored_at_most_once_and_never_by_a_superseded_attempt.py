"""A step's result is stored at most once, and never by a superseded attempt."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from django_app.models import StepAttempt, StepResult
from durable_celery import RetryPolicy, Workflow, codec, current_step, runtime, step, workflow
from durable_celery.core import transitions
from durable_celery.ports import OpenStep, StepChange
from tests.invariants.examples import few
from tests.pump import Hint, Pump, clear_tables

pytestmark = pytest.mark.django_db(transaction=True)

meanwhile: list[str] = []  # what happens during each execution, in order
executions: list[tuple[int, str]] = []  # attempt, value
disturb: list[Callable[[str], None]] = []


@step(retry=RetryPolicy(maximum_attempts=0, initial_interval=1, jitter=False), start_to_close_timeout=20)
def work() -> str:
    """Returns another value at each execution; while it runs, the world goes on."""
    number = len(executions)
    executions.append((current_step().attempt, f"value {number}"))
    if number < len(meanwhile):
        disturb[0](meanwhile[number])
    return f"value {number}"


@workflow
def working() -> Workflow[str]:
    return (yield from work())


@few
@given(st.lists(st.sampled_from(["again", "lease", "limit", "buried", "nothing", "tick"]), max_size=5))
def test_a_result_is_stored_at_most_once_and_never_by_a_superseded_attempt(disturbances: list[str]) -> None:
    clear_tables()
    executions.clear()
    meanwhile[:] = disturbances
    with Pump(max_deaths=9, max_expiries=9) as pump:  # more than can happen here: a cap would end the step
        stored = watch_what_is_stored()
        disturb[:] = [lambda what: happen(pump, what)]
        handle = working.start()
        pump.finish()
        value = handle.result(timeout=0)

        assert len(stored) == 1
        [(attempt, text)] = stored
        assert codec.decode(text) == value
        assert [value] == [v for a, v in executions if a == attempt]
        row = StepResult.objects.get(instance_id=handle.id)
        assert (row.result, row.attempt) == (text, attempt)
        assert attempt == max(a for a, _ in executions)
        assert len({a for a, _ in executions}) == len(executions)
        superseded = set(StepAttempt.objects.filter(outcome="superseded").values_list("attempt", flat=True))
        assert superseded == {a for a, _ in executions if a != attempt}
        assert [ended.kind for ended in pump.ended].count("succeeded") == 1

        for hint in list(pump.sent):
            pump.deliver(hint)
        pump.advance_time(minutes=10)
        assert len(stored) == 1
        assert StepResult.objects.get(instance_id=handle.id).result == text


def happen(pump: Pump, what: str) -> None:
    """Something that a body which is still running may live through."""
    if what == "again":
        for hint in hints_of_steps(pump):
            pump.deliver(hint)
    elif what == "lease":  # nobody renews it: this machine stands still while another keeps time
        stale, pump.lease = pump.lease, None
        assert stale is not None
        pump.dead.append(stale)
        for _ in range(30):
            pump.now += timedelta(seconds=1)
            pump.tick()
        pump.drain()
    elif what == "limit":
        pump.advance_time(seconds=40)
    elif what == "buried":
        assert pump.lease is not None
        runtime.current().store.bury_lease(pump.lease.id, pump.now)
        from durable_celery import sweeps

        sweeps.release(pump.lease.id, reason="it was thought to be dead")
        pump.advance_time(seconds=5)
    elif what == "tick":
        pump.advance_time(seconds=5)


def hints_of_steps(pump: Pump) -> list[Hint]:
    return [hint for hint in pump.sent if hint.step is not None]


def watch_what_is_stored() -> list[tuple[int, str]]:
    """Attempt and text of each result that reached its row."""
    store: Any = runtime.current().store
    change_step, stored = store.change_step, []

    def watched(step: OpenStep, change: StepChange, **more: Any) -> Any:
        changed = change_step(step, change, **more)
        if changed.ok and change.state == transitions.SUCCEEDED:
            stored.append((step.attempt, change.result or ""))
        return changed

    store.change_step = watched
    return stored
