"""O-09: a broker may take a message and drop it while the client sees success. With every third message dropped, each
workflow still ends, and each step has run once."""

from __future__ import annotations

import logging
from collections import Counter
from pathlib import Path

import pytest
from kombu.messaging import Producer

from django_app.models import StepResult
from durable_celery import Workflow, step, workflow
from tests.effects import effects
from tests.processes import ROOT
from tests.project.testapp.case_kills import lose_every
from tests.project.testapp.workflows import sequence

COUNT = 30
bodies: Counter[tuple[int, int]] = Counter()


@pytest.mark.prefork
@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("workflows", [8, pytest.param(COUNT, marks=pytest.mark.nightly)])
def test_o09_workflows_end_though_every_third_publish_goes_nowhere(start_worker, monkeypatch, workflows):
    monkeypatch.setattr(Producer, "publish", Producer.publish)  # put back when the test ends
    lose_every(3)
    handles = [sequence.start(f"run {number}", 3) for number in range(workflows)]
    worker = start_worker(env={"TEST_LOSES_EVERY": "3", "TEST_DURABLE_CELERY": '{"TICK": 0.2}'})
    for handle in handles:
        assert handle.result(timeout=90) == ["step 0", "step 1", "step 2"]
    for number in range(workflows):
        assert effects(f"run {number}") == {"step 0": 1, "step 1": 1, "step 2": 1}
    assert "is sent again" in worker.text()


# -- without processes -------------------------------------------------------------------------------------------------


@step
def count(workflow_number: int, step_number: int) -> int:
    bodies[workflow_number, step_number] += 1
    return step_number


@workflow
def three_steps(number: int) -> Workflow[list[int]]:
    results = []
    for step_number in range(3):
        results.append((yield from count(number, step_number)))
    return results


def test_o09_what_is_sent_again_is_counted_on_its_row_and_logged(pump, caplog):
    bodies.clear()
    pump.fate = lambda hint: () if hint.number % 3 == 0 else (0.0,)
    handles = three_steps.start_many([(number,) for number in range(COUNT)])
    most: Counter[int] = Counter()
    with caplog.at_level(logging.INFO, logger="durable_celery"):
        pump.drain()
        while pump.next_due() is not None:
            pump.now = max(pump.now, pump.next_due())
            pump.tick()
            most |= Counter(dict(StepResult.objects.values_list("id", "resends")))
            pump.drain()

    assert [handle.result(timeout=0) for handle in handles] == [[0, 1, 2]] * COUNT
    assert [handle.status for handle in handles] == ["COMPLETED"] * COUNT
    assert bodies == {(number, step_number): 1 for number in range(COUNT) for step_number in range(3)}
    lost = Counter(hint.step for hint in pump.sent if hint.step is not None and hint.number % 3 == 0)
    assert sum(lost.values()) > COUNT // 2
    assert most == lost
    logged = [record.getMessage() for record in caplog.records if "is sent again" in record.getMessage()]
    assert len(logged) == sum(lost.values())
    for number in set(lost.values()):
        assert any(f"number {number}" in line for line in logged)


def test_o09_the_documentation_recommends_publisher_confirms():
    pages = [*Path(ROOT, "docs").glob("**/*.md"), ROOT / "README.md"]
    assert any("confirm_publish" in page.read_text(encoding="utf-8") for page in pages)
