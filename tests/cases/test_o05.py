"""O-05: a step that kills whatever process runs it must end: after three deaths, counted apart from failures, its
workflow is told. Its neighbours on the same worker go on."""

from __future__ import annotations

import pytest

from django_app.models import StepAttempt, StepResult
from durable_celery import RetryPolicy, StepFailed, Workflow, WorkflowFailed, current_step, step, workflow
from tests.effects import effects
from tests.project.testapp.case_kills import dying_once, surviving
from tests.project.testapp.workflows import dying, sequence
from tests.pump import Killed

starts: list[int] = []


@pytest.mark.kill
@pytest.mark.prefork
@pytest.mark.django_db(transaction=True)
def test_o05_a_step_that_kills_its_process_is_started_three_times_and_its_neighbours_finish(start_worker, tmp_path):
    folders = {name: tmp_path / name for name in ("uncaught", "caught", "once")}
    for folder in folders.values():
        folder.mkdir()
    uncaught = dying.start("uncaught", str(folders["uncaught"]), 99)
    caught = surviving.start("caught", str(folders["caught"]), 99)
    once = dying_once.start("once", str(folders["once"]))
    others = [sequence.start(f"other {number}", 3) for number in range(5)]
    start_worker(env={"TEST_DURABLE_CELERY": '{"TICK": 0.2}'})

    with pytest.raises(WorkflowFailed) as failed:
        uncaught.result(timeout=60)
    assert uncaught.status == "FAILED"
    assert failed.value.error_type.endswith(".StepFailed")
    assert failed.value.attributes["lost"] is True
    assert caught.result(timeout=60) == ["failed", True, 3]
    with pytest.raises(WorkflowFailed):
        once.result(timeout=60)
    for other in others:
        assert other.result(timeout=60) == ["step 0", "step 1", "step 2"]

    assert [len(list(folders[name].iterdir())) for name in folders] == [3, 3, 1]
    assert [effects(name) for name in folders] == [{"die": 3}, {"die": 3}, {"die": 1}]
    for number in range(5):
        assert effects(f"other {number}") == {"step 0": 1, "step 1": 1, "step 2": 1}
    for handle, deaths in ((uncaught, 3), (caught, 3), (once, 1)):
        [row] = StepResult.objects.filter(instance_id=handle.id)
        assert (row.state, row.deaths, row.failures, row.attempt) == ("FAILED", deaths, 0, deaths)
        kept = StepAttempt.objects.filter(step=row).order_by("attempt")
        assert [a.outcome for a in kept] == ["lost"] * deaths


# -- deaths and failures, each with its own cap --------------------------------------------------------------------


@step(retry=RetryPolicy(maximum_attempts=2, initial_interval=1, jitter=False))
def unsteady(ends: list[str]) -> int:
    """Ends its attempts, by their number, as `ends` says; those after them return."""
    attempt = current_step().attempt
    starts.append(attempt)
    end = ends[attempt - 1] if attempt <= len(ends) else ""
    if end == "dies":
        raise Killed
    if end == "fails":
        raise RuntimeError("no luck")
    return attempt


@workflow
def unsteadily(ends: list[str]) -> Workflow[object]:
    try:
        return (yield from unsteady(ends))
    except StepFailed as error:
        return [error.lost, error.timed_out, error.attempts]


@pytest.mark.parametrize(
    ("ends", "state", "counts", "result"),
    [
        (["dies", "fails", "dies"], "SUCCEEDED", (4, 1, 2), 4),
        (["dies", "dies", "dies"], "FAILED", (3, 0, 3), [True, False, 3]),
        (["dies", "fails", "fails"], "FAILED", (3, 2, 1), [False, False, 3]),
    ],
)
def test_o05_deaths_and_failed_attempts_have_each_a_count_and_a_cap(pump, ends, state, counts, result):
    starts.clear()
    handle = unsteadily.start(ends)
    pump.finish()
    [row] = StepResult.objects.filter(instance_id=handle.id)
    assert (row.state, (row.attempt, row.failures, row.deaths)) == (state, counts)
    assert handle.result(timeout=0) == result
    assert starts == list(range(1, counts[0] + 1))
