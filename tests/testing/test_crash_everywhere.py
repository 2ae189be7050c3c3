"""A workflow with a crash at each point it passes."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from durable_celery import (
    RetryPolicy,
    Signal,
    UsageError,
    Workflow,
    WorkflowFailed,
    continue_as_new,
    gather,
    sleep,
    step,
    workflow,
)
from durable_celery.testing import Harness
from tests.project.testapp.models import Effect

approved = Signal("crash.approved", str)
QUICK = RetryPolicy(maximum_attempts=3, initial_interval=1)


@step(name="crash.write", retry=QUICK)
def write(what: str) -> str:
    Effect.objects.create(run="crash", what=what)
    return what


@step(name="crash.keep", atomic=True, retry=QUICK)
def keep(what: str) -> str:
    Effect.objects.create(run="crash", what=what)
    return what


@workflow(name="crash.ten")
def ten() -> Workflow[list[str]]:
    """Ten steps."""
    done = []
    for number in range(5):
        done.append((yield from write(f"plain {number}")))
        done.append((yield from keep(f"atomic {number}")))
    return done


@workflow(name="crash.owing")
def owing(again: bool = True) -> Workflow[str]:
    if again:
        yield from gather(write("plain a"), keep("b"))
        return (yield from continue_as_new(again=False))
    yield from keep("c").compensate_with(keep("undo c"))
    by = yield from approved.wait(timeout=60)
    yield from sleep(5)
    raise WorkflowFailed(f"not for {by}")


def kept() -> list[tuple[str, int]]:
    return sorted(
        Counter(what for what in Effect.objects.values_list("what", flat=True) if "plain" not in what).items()
    )


def approving(durable: Harness) -> Any:
    def during(run: Any) -> None:
        if "signal 'crash.approved'" in run.waiting_for:
            durable.signal(run, approved, "ann")

    return during


@pytest.mark.django_db
def test_ten_steps_survive_a_crash_at_each_point(durable: Harness) -> None:
    report = durable.crash_everywhere(ten, effects=kept)
    assert report.all_equal
    assert len(report.points) >= 40
    assert (report.runs, report.crashes) == (len(report.points) + 1, len(report.points))
    assert str(report).startswith(f"crash.ten: {len(report.points)} points, {report.runs} runs, all equal (")
    assert Effect.objects.count() == 0, "what the runs wrote is undone"
    assert durable.start(ten).status == "COMPLETED"


@pytest.mark.django_db
def test_what_the_outside_does_compensations_and_runs_of_a_chain(durable: Harness) -> None:
    report = durable.crash_everywhere(owing, during=approving(durable), effects=kept)
    assert {"send.after_commit", "start.after_commit", "atomic.after_commit", "tick.before_act"} <= {
        point.name for point in report.points
    }


@pytest.mark.django_db
def test_what_is_no_workflow_is_refused(durable: Harness) -> None:
    with pytest.raises(UsageError, match="takes a workflow, or one with options, got"):
        durable.crash_everywhere(write, "x")
