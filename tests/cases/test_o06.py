"""O-06: a message that vanishes between the broker and a worker's book-keeping leaves no trace there. The row it was
about is found by its age and sent again."""

from __future__ import annotations

import signal
from typing import Any

import pytest

from django_app.models import StepResult
from durable_celery import Workflow, step, workflow
from durable_celery.engine.verdicts import RESEND_GRACE
from tests.broker import lose_messages, waiting_messages
from tests.effects import effects
from tests.processes import signal_to
from tests.project.testapp.workflows import sequence

FAST = {"env": {"TEST_DURABLE_CELERY": '{"TICK": 0.2}'}}
MESSAGES = ["its start", "its first step", "its second step"]

processes = [pytest.mark.prefork, pytest.mark.kill, pytest.mark.django_db(transaction=True)]
bodies: list[int] = []


@step
def count(number: int) -> int:
    bodies.append(number)
    return number


@workflow
def two_steps() -> Workflow[list[int]]:
    first = yield from count(1)
    return [first, (yield from count(2))]


@pytest.mark.parametrize("lost", range(len(MESSAGES)), ids=MESSAGES)
def test_o06_a_lost_message_is_sent_again_once_it_is_older_than_its_grace(pump, lost):
    bodies.clear()
    began = pump.now
    pump.fate = lambda hint: () if hint.number == lost + 1 else (0.0,)
    handle = two_steps.start()
    pump.drain()
    pump.advance_time(RESEND_GRACE.total_seconds() - 0.1)
    assert handle.status in ("PENDING", "WAITING")
    assert len(pump.sent) == lost + 1
    pump.finish()

    assert handle.result(timeout=0) == [1, 2]
    assert bodies == [1, 2]
    assert pump.now - began == RESEND_GRACE
    about = pump.sent[lost]
    again = pump.sent[lost + 1]
    assert (again.step, again.instance, again.name) == (about.step, about.instance, about.name)
    assert len(pump.sent) == len(MESSAGES) + 1


@pytest.mark.kill
@pytest.mark.prefork
@pytest.mark.django_db(transaction=True)
def test_o06_a_workflow_whose_only_message_was_lost_before_any_worker_ran_completes(start_worker):
    lose_messages()  # of tests before
    handle = sequence.start("run", 2)
    assert lose_messages() == 1
    assert waiting_messages() == 0
    start_worker(**FAST)
    assert handle.result(timeout=30) == ["step 0", "step 1"]
    assert effects("run") == {"step 0": 1, "step 1": 1}


@pytest.mark.parametrize(
    ("workers", "each"),
    [
        pytest.param(3, 8, marks=processes, id="few"),
        pytest.param(20, 10, marks=[*processes, pytest.mark.nightly, pytest.mark.timeout(600)], id="many"),
    ],
)
def test_o06_workers_told_to_stop_while_messages_pour_in_lose_and_double_nothing(start_worker, workers, each):
    handles: list[Any] = []
    for number in range(workers):
        worker = start_worker(**FAST)
        for _ in range(each):
            handles.append(sequence.start(f"run {len(handles)}", 2))
            if len(handles) == number * each + each // 2:
                signal_to(worker.pid, signal.SIGTERM)
    start_worker(**FAST)

    for number, handle in enumerate(handles):
        assert handle.result(timeout=60) == ["step 0", "step 1"]
        assert effects(f"run {number}") == {"step 0": 1, "step 1": 1}
    assert StepResult.objects.filter(deaths__gt=0).count() == 0
