"""O-34: a cancel while no worker runs is not lost: it is in the database, and the message that waits finds it there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from django_app.models import StepResult
from durable_celery import Workflow, WorkflowCancelled, step, workflow
from durable_celery.engine import turns
from tests.broker import waiting_messages
from tests.effects import effects
from tests.processes import ROOT, eventually
from tests.project.testapp.workflows import sequence
from tests.pump import Pump

pytestmark = pytest.mark.django_db(transaction=True)

ran: list[str] = []


@step
def work(what: str) -> str:
    ran.append(what)
    return what


@workflow
def working() -> Workflow[str]:
    yield from work("first")
    return (yield from work("second"))


@pytest.fixture(autouse=True)
def _clean() -> None:
    ran.clear()


@pytest.mark.parametrize("turn_first", [False, True])
def test_o34_a_step_whose_message_lay_in_the_queue_never_runs(pump: Pump, turn_first: bool) -> None:
    handle = working.start()
    pump.deliver(pump.queue[0])
    (message,) = pump.queue
    assert handle.cancel("nobody is here") == "requested"
    if turn_first:
        pump.deliver(pump.queue[-1])
    ended = pump.deliver(message)
    assert ended is not None
    assert ended.kind == "refused"  # taken, acknowledged and dropped: by the row the body may not run
    pump.finish()
    assert ran == []
    assert handle.status == "CANCELLED"
    with pytest.raises(WorkflowCancelled, match="nobody is here"):
        handle.result(timeout=0)
    assert [(entry.state, entry.attempts) for entry in handle.history()] == [("CANCELLED", 0)]


def test_o34_without_any_message_the_tick_brings_the_cancel_in(pump: Pump) -> None:
    handle = working.start()
    pump.deliver(pump.queue[0])
    pump.queue.clear()
    pump.down = True
    assert handle.cancel() == "requested"
    pump.down = False
    pump.finish()
    assert ran == []
    assert handle.status == "CANCELLED"


def test_o34_nothing_is_asked_of_the_memory_of_workers() -> None:
    sources = [path for folder in ("durable_celery", "django_app") for path in Path(ROOT, folder).rglob("*.py")]
    assert len(sources) > 50
    text = {path: path.read_text(encoding="utf-8") for path in sources}
    assert [path for path in sources if re.search(r"\brevoke\w*\(|control\.(revoke|terminate)", text[path])] == []


@pytest.mark.prefork
@pytest.mark.kill
def test_o34_a_worker_that_starts_after_the_cancel_runs_nothing(start_worker: Any) -> None:
    env = {"TEST_DURABLE_CELERY": '{"INLINE_STEPS": 0, "TICK": 0.2, "LEASE": 2}'}
    handle = sequence.start("o34", 2)
    with_message = sequence.start("o34 taken up", 2)
    worker = start_worker(env=env)
    assert handle.result(timeout=30) == with_message.result(timeout=30) == ["step 0", "step 1"]
    worker.kill()

    # The turn that makes step 1 is taken here; its message goes to the queue of the broker, where nobody is.
    late = sequence.start("o34 late", 2)
    turns.advance(late._row().id)
    assert StepResult.objects.get(instance_id=late.id).state == "SCHEDULED"
    assert waiting_messages() > 0
    assert late.cancel("all are gone") == "requested"
    start_worker(env=env)
    with pytest.raises(WorkflowCancelled, match="all are gone"):
        late.result(timeout=30)
    eventually(lambda: waiting_messages() == 0, "an empty queue")
    assert late.status == "CANCELLED"
    assert effects("o34 late") == {}
