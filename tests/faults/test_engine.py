"""Each kind of fault meets a workflow on its way: it ends once, with the effects it promises."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest
from django.db import DatabaseError, InterfaceError, connection

from django_app.models import StepResult
from durable_celery import RetryPolicy, Signal, Workflow, faults, gather, sleep, step, workflow
from durable_celery.faults import InjectedFault
from tests.effects import effects
from tests.project.testapp.models import Effect
from tests.pump import Hint, Pump

QUICK = RetryPolicy(maximum_attempts=5, initial_interval=1)
go = Signal("faults.go", str)
runs = count(1)

MESSAGES = ("drop", "lose", "unconfirmed", "double", "delay=90", "reorder")
# Where the database may report that it has undone what was asked for, and the engine asks again.
RETRIED = ("start.in_transaction", "send.in_transaction", "claim.in_statement", "step.in_transaction",
           "turn.begins", "turn.swapped", "turn.related", "turn.in_transaction")  # fmt: skip
WORKERS = ("claim.before", "claim.after_commit", "body.before", "body.after", "record.before", "record.after",
           "atomic.before_commit", "atomic.after_commit", "turn.before_body", "turn.before_commit", "turn.after_commit",
           "publish.before", "publish.after", "step.in_transaction", "turn.in_transaction")  # fmt: skip


@step(name="faults.write", retry=QUICK)
def write(run: str, what: str) -> str:
    Effect.objects.create(run=run, what=what)
    return what


@step(name="faults.keep", atomic=True, retry=QUICK)
def keep(run: str, what: str) -> str:
    Effect.objects.create(run=run, what=what)
    return what


@workflow(name="faults.all_sorts")
def all_sorts(run: str) -> Workflow[list[str]]:
    first = yield from write(run, "plain")
    second, third = yield from gather(keep(run, "atomic"), write(run, "beside"))
    yield from sleep(5)
    return [first, second, third, (yield from go.wait())]


class Worker(Pump):
    """Goes on after an error, on a new connection if that one is broken, as Celery's worker does."""

    def deliver(self, hint: Hint) -> Any:
        try:
            return super().deliver(hint)
        finally:
            connection.close_if_unusable_or_obsolete()


@pytest.fixture
def pump(transactional_db: None) -> Iterator[Pump]:
    with Worker() as pump:
        yield pump


def run_it(pump: Pump, text: str, *, again: int) -> faults.Injection:
    """From start to end under these faults; ``again``: how often a body may have run once more."""
    run = f"run {next(runs)}"
    with faults.injected(text) as injection:
        handle = all_sorts.start(run)
        pump.finish()
        go.send(handle, "go", signal_id="go")
        pump.finish()
    assert handle.result(timeout=0) == ["plain", "atomic", "beside", "go"]
    assert handle.status == "COMPLETED"
    done = effects(run)
    assert set(done) == {"plain", "atomic", "beside"}
    assert done["atomic"] == 1
    assert done["plain"] + done["beside"] <= 2 + again
    rows = StepResult.objects.filter(instance_id=handle.id)
    assert len(rows) == len({row.position for row in rows}) == len(handle.history())
    return injection


@pytest.mark.parametrize("kind", MESSAGES)
def test_a_message_fault_costs_time_alone(pump: Pump, kind: str) -> None:
    injection = run_it(pump, f"message.turn:{kind}; message.turn:{kind}:3; message.step:{kind}:2", again=0)
    assert injection.struck[f"message.turn:{kind}"] == injection.struck[f"message.step:{kind}:2"] == 1


@pytest.mark.parametrize("nth", [1, pytest.param(2, marks=pytest.mark.nightly)])
@pytest.mark.parametrize("point", RETRIED)
def test_a_deadlock_is_tried_again_and_nobody_notices(pump: Pump, point: str, nth: int) -> None:
    injection = run_it(pump, f"{point}:deadlock:{nth}", again=0)
    assert sum(injection.struck.values()) >= (nth == 1)


@pytest.mark.parametrize("point", ["tick.before_act", "tick.judged", "tick.after_act"])
def test_a_row_that_the_tick_cannot_handle_is_handled_by_a_later_one(pump: Pump, point: str) -> None:
    injection = run_it(pump, f"message.step:lose; {point}:raise", again=0)
    assert len(injection.struck) == 2


@pytest.mark.parametrize(
    ("kind", "point"),
    [
        pytest.param(kind, point, marks=() if number % 3 == offset else pytest.mark.nightly)
        for kind, offset in (("raise", 0), ("cut", 2))
        for number, point in enumerate(WORKERS)
    ],
)
def test_an_error_anywhere_in_a_worker_costs_an_attempt_at_most(pump: Pump, kind: str, point: str) -> None:
    pump.contained = (InjectedFault, DatabaseError, InterfaceError)
    nth = 1 if point.startswith("atomic.") else 2
    assert sum(run_it(pump, f"{point}:{kind}:{nth}", again=1).struck.values()) == 1
