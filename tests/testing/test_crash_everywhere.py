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
from durable_celery.testing.reports import Point, sample_of
from tests.project.testapp.models import Effect

approved = Signal("crash.approved", str)
ticks: list[str] = []
sqlite = pytest.mark.on("sqlite", "memory")  # killed processes work on copies of SQLite files
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


@workflow(name="crash.short")
def short() -> Workflow[str]:
    yield from keep("d")
    return (yield from approved.wait())


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
def test_ten_steps_survive_a_crash_at_each_of_more_than_40_points(durable: Harness) -> None:
    report = durable.crash_everywhere(ten, effects=kept, sample=60)
    assert report.all_equal
    assert (len(report.points) >= 40, report.crashes, report.runs) == (True, 60, 61)
    assert str(report).startswith(f"crash.ten: {len(report.points)} points, 61 runs, all equal (")
    assert Effect.objects.count() == 0, "what the runs wrote is undone"
    assert durable.start(ten).status == "COMPLETED"


@pytest.mark.nightly
@pytest.mark.timeout(600)
@pytest.mark.django_db
@pytest.mark.parametrize("flow", [ten, owing])
def test_a_crash_at_each_point(durable: Harness, flow: Any) -> None:
    report = durable.crash_everywhere(flow, during=approving(durable), effects=kept)
    assert report.crashes == len(report.points) == report.runs - 1
    print(report)


@pytest.mark.django_db
def test_what_the_outside_does_compensations_and_runs_of_a_chain(durable: Harness) -> None:
    report = durable.crash_everywhere(owing, during=approving(durable), effects=kept, sample=50)
    assert {
        "send.in_transaction", "send.after_commit", "start.in_transaction", "start.after_commit", "tick.before_act",
        "turn.successor_in_transaction", "continue.after_commit", "atomic.after_commit",
    } <= {point.name for point in report.points}  # fmt: skip
    assert report.crashes == 50


def test_a_sample_has_each_name_and_is_chosen_by_its_seed() -> None:
    points = [Point(name=name, nth=nth) for nth in range(1, 5) for name in "abc"]
    assert sample_of(points, None, 0) == sample_of(points, 12, 0) == points
    for count, size in ((1, 3), (5, 5)):
        samples = {tuple(sample_of(points, count, seed)) for seed in range(5)}
        assert all(len(chosen) == size and {point.name for point in chosen} == set("abc") for chosen in samples)
        assert all(list(chosen) == [point for point in points if point in chosen] for chosen in samples)
        assert len(samples) > 1
        assert sample_of(points, count, 3) == sample_of(points, count, 3)


# -- processes that are killed -----------------------------------------------------------------------------------------


@sqlite
@pytest.mark.django_db(transaction=True)
def test_processes_are_really_killed(durable: Harness) -> None:
    report = durable.crash_everywhere(short, during=approving(durable), effects=kept, real=True, sample=1)
    assert report.all_equal
    assert report.crashes == len({point.name for point in report.points}) >= 20
    assert Effect.objects.count() == 0


@sqlite
@pytest.mark.nightly
@pytest.mark.timeout(600)
@pytest.mark.django_db(transaction=True)
def test_processes_are_really_killed_at_each_point(durable: Harness) -> None:
    report = durable.crash_everywhere(owing, during=approving(durable), effects=kept, real=True)
    assert report.crashes == len(report.points) >= 100


@pytest.mark.django_db
def test_a_process_of_its_own_would_not_see_an_open_transaction(durable: Harness) -> None:
    with pytest.raises(UsageError, match=r"crash_everywhere\(real=True\) (inside a transaction|works on copies)"):
        durable.crash_everywhere(short, real=True)


@pytest.mark.django_db
def test_what_is_no_workflow_is_refused(durable: Harness) -> None:
    with pytest.raises(UsageError, match="takes a workflow, or one with options, got"):
        durable.crash_everywhere(write, "x")


@pytest.mark.django_db
def test_an_outside_that_never_rests_is_told(durable: Harness) -> None:
    with pytest.raises(AssertionError, match=r"during= was called 100 times at one moment"):
        durable.crash_everywhere(owing, again=False, during=lambda run: durable.signal(run, "other"))
