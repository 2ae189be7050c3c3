"""O-48: the error a step raised is the error that is reported, whatever it is made of; nothing of the worker breaks."""

from __future__ import annotations

import json
import pickle
from typing import Any

import pytest

from django_app.models import StepAttempt, StepResult
from durable_celery import StepFailed, Workflow, WorkflowFailed, step, workflow
from tests.effects import effects
from tests.project.testapp.case_errors import KINDS, Odd, erring, raise_odd, raising
from tests.project.testapp.workflows import sequence
from tests.pump import Pump

made: list[int] = []
seen: list[StepFailed] = []


class Counted(Exception):
    """Counts how often its class is called."""

    def __init__(self, message: str) -> None:
        made.append(1)
        super().__init__(message)


@step(retry=None)
def counted() -> None:
    raise Counted("m")


@workflow
def counting() -> Workflow[None]:
    yield from counted()


@step(retry=None)
def odd() -> None:
    raise Odd("m", 3)


@workflow
def passing_it_on() -> Workflow[None]:
    try:
        yield from odd()
    except StepFailed as error:
        seen.append(error)
        raise


@pytest.mark.parametrize("kind", KINDS)
def test_o48_type_message_and_traceback_survive_and_the_retry_runs(pump: Pump, kind: str) -> None:
    handle = erring.start("o48", kind)
    pump.finish()
    error_type, message, traceback, attempts = handle.result(timeout=0)
    assert error_type == KINDS[kind]
    assert attempts == 2
    assert message if kind in ("speechless", "unspeakable") else "m" in message
    if kind in ("odd", "exit", "cycle", "local"):
        assert message == "m"
    assert "raise_odd" in traceback or "raise" in traceback
    assert "case_errors.py" in traceback
    row = StepResult.objects.get(instance_id=handle.id)
    assert (row.state, row.attempt, row.failures) == ("FAILED", 2, 2)
    assert json.loads(row.failure)["type"] == KINDS[kind]
    kept = StepAttempt.objects.filter(step=row).order_by("attempt")
    assert [record.outcome for record in kept] == ["failed", "failed"]
    (entry,) = handle.history()
    assert entry.error is not None
    assert entry.error.type == KINDS[kind]
    assert effects("o48") == {kind: 2}


def test_o48_the_body_is_given_type_message_and_attributes(pump: Pump) -> None:
    seen.clear()
    handle = passing_it_on.start()
    pump.finish()
    error = seen[-1]
    assert error.error_type == f"{Odd.__module__}.Odd"
    assert error.message == "m"
    assert error.matches(Odd)
    assert error.attributes["code"] == 3
    assert "in odd" in error.traceback
    again = pickle.loads(pickle.dumps(error))
    assert (again.error_type, again.message) == (error.error_type, error.message)
    with pytest.raises(WorkflowFailed, match="Odd: m"):
        handle.result(timeout=0)


def test_o48_an_error_is_kept_as_data_and_its_class_never_called_again(pump: Pump) -> None:
    made.clear()
    handle = counting.start()
    pump.finish()
    with pytest.raises(WorkflowFailed):
        handle.result(timeout=0)
    handle.history()
    assert made == [1]
    with pytest.raises(Odd):
        raise_odd("odd")


@pytest.mark.prefork
@pytest.mark.django_db(transaction=True)
def test_o48_the_worker_and_its_pool_outlive_every_error(start_worker: Any) -> None:
    handles = {kind: erring.start("o48", kind) for kind in KINDS}
    worker = start_worker(env={"TEST_DURABLE_CELERY": '{"TICK": 0.2}'})
    pid, children = worker.pid, worker.children()
    for kind, handle in handles.items():
        error_type, _, _, attempts = handle.result(timeout=60)
        assert (error_type, attempts) == (KINDS[kind], 2)
    after = sequence.start("after", 2)
    assert after.result(timeout=60) == ["step 0", "step 1"]
    assert not worker.ended()
    assert worker.pid == pid
    assert worker.children() == children
    assert effects("o48") == dict.fromkeys(KINDS, 2)
    assert not StepResult.objects.filter(name=raising.name, deaths__gt=0).exists()
    log = worker.text()
    for words in ("WorkerLostError", "PicklingError", "Unrecoverable error", "was interrupted"):
        assert words not in log, words
