"""O-10: the lease of a worker that stands still runs out and its step is run by another; then the first one goes on and
reports as well. The late report is kept for people, and changes nothing."""

from __future__ import annotations

import signal

import pytest

from django_app.models import StepAttempt, StepResult, WorkflowInstance
from durable_celery import Workflow, codec, runtime, step, workflow
from durable_celery.core.failure import Failure
from durable_celery.engine import verdicts
from tests.effects import effects
from tests.processes import eventually, signal_to
from tests.project.testapp.case_kills import reconsidering

SHORT = {"TEST_DURABLE_CELERY": '{"LEASE": 2, "TICK": 0.2}'}


@pytest.mark.kill
@pytest.mark.prefork
@pytest.mark.django_db(transaction=True)
def test_o10_an_attempt_that_reports_after_another_took_over_is_kept_and_changes_nothing(start_worker, tmp_path):
    gate = tmp_path / "gate"
    handles = {end: reconsidering.start(end, str(gate), end) for end in ("returns", "raises")}
    first = start_worker(env=SHORT, arguments=["-n", "first@%h"])
    for end in handles:
        eventually(lambda end=end: effects(end) == {"attempt 1": 1}, "the first attempt")
    signal_to(first.pid, signal.SIGSTOP)  # renews its lease no more; its pool goes on
    start_worker(env=SHORT, arguments=["-n", "second@%h"])
    for handle in handles.values():
        assert handle.result(timeout=30) == "B"
    before = [finished(handle) for handle in handles.values()]
    gate.touch()
    for end in handles:
        eventually(lambda end=end: effects(end)["late"] == 1, "the late end of the first attempt")
        eventually(lambda end=end: outcomes(handles[end])[-1:] == ["superseded"], "what is kept of it")
    signal_to(first.pid, signal.SIGCONT)

    for end, handle in handles.items():
        assert effects(end) == {"attempt 1": 1, "attempt 2": 1, "late": 1, "took B": 1}
        assert (handle.status, handle.result(timeout=0)) == ("COMPLETED", "B")
        assert outcomes(handle) == ["lost", "superseded"]
    assert [finished(handle) for handle in handles.values()] == before
    late = StepAttempt.objects.get(step__instance_id=handles["returns"].id, outcome="superseded")
    assert (late.attempt, codec.decode(late.result or "")) == (1, "A")
    late = StepAttempt.objects.get(step__instance_id=handles["raises"].id, outcome="superseded")
    assert (late.attempt, Failure.from_text(late.failure or "").brief) == (1, "RuntimeError: A")
    assert first.text().count("ended after it was superseded") == 2


def outcomes(handle) -> list[str]:
    kept = StepAttempt.objects.filter(step__instance_id=handle.id).order_by("id")
    return list(kept.values_list("outcome", flat=True))


def finished(handle) -> tuple[object, ...]:
    """What a late report could change."""
    row = WorkflowInstance.objects.get(pk=handle.id)
    steps = StepResult.objects.filter(instance_id=handle.id).order_by("id")
    return (row.revision, row.turn, *steps.values_list("state", "attempt", "result", "failure", "taken_turn"))


# -- the completion with the token of an earlier attempt --------------------------------------------------------------


@step
def first_or_second() -> str:
    return "B"


@workflow
def reporting_twice() -> Workflow[str]:
    return (yield from first_or_second())


@pytest.mark.parametrize("end", ["A", RuntimeError("A")])
@pytest.mark.parametrize("when", ["running", "retrying", "ended"])
def test_o10_a_completion_with_the_token_of_an_earlier_attempt_is_refused(pump, end, when):
    """While the second attempt runs, before it starts, after it has ended."""
    handle = reporting_twice.start()
    pump.deliver(pump.ready()[0])
    store = runtime.current().store
    [row] = StepResult.objects.filter(instance_id=handle.id)
    stale = claim(pump, row.id)
    lost = verdicts.after_loss(stale, pump.now, "its lease ran out", proven=False, max_deaths=3, max_expiries=10)
    assert store.change_step(stale, lost).ok
    current = claim(pump, row.id) if when != "retrying" else None
    if current is not None and when == "ended":
        assert store.change_step(current, verdicts.after_success(current, codec.encode("B"), pump.now)).ok
    before = finished(handle)

    assert not store.change_step(stale, report(stale, end, pump.now)).ok
    assert finished(handle) == before
    if current is not None and when == "running":
        assert store.change_step(current, verdicts.after_success(current, codec.encode("B"), pump.now)).ok
    pump.finish()
    assert handle.result(timeout=0) == "B"
    assert WorkflowInstance.objects.get(pk=handle.id).turn == 2


def claim(pump, step_id):
    claimed = runtime.current().store.claim(
        step_id, token=f"token {pump.now} {StepResult.objects.get(pk=step_id).attempt}", lease_id=pump.lease.id, pid=1,
        now=pump.now, close_at=None, look_at=None,
    )  # fmt: skip
    assert claimed is not None
    return claimed.step


def report(stale, end, now):
    if isinstance(end, str):
        return verdicts.after_success(stale, codec.encode(end), now)
    return verdicts.after_failure(stale, Failure(type="RuntimeError", message=str(end)), now, 1.0)
