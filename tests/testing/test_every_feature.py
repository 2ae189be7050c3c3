"""The workflow that uses every feature, with crashes at points it passes."""

from __future__ import annotations

import pytest
from django.test import override_settings

from durable_celery import faults
from durable_celery.testing import Harness, Report
from tests.testing.every_feature import effects, every_feature, outside

NOT_PASSED = {  # by a workflow in the harness
    "heartbeat.before", "lease.before_renewal", "lease.after_renewal", "steer.in_transaction",
    "purge.before_batch", "purge.in_transaction", "purge.after_batch",
}  # fmt: skip
KEPT = {"second undone", "cleaned up", "undone by the saga", "patched 2", "m1", "m2", "m3", "a", "c", "child 3"}


def crash(durable: Harness, *, real: bool = False, sample: int | None = None, seed: int = 0) -> Report:
    report = durable.crash_everywhere(
        every_feature, during=outside(durable), effects=effects, real=real, sample=sample, seed=seed
    )
    print(report)
    assert report.crashes == report.runs - 1
    return report


def once(durable: Harness) -> None:
    run, act = durable.start(every_feature), outside(durable)
    while run.status not in ("CANCELLED", "FAILED", "BLOCKED", "COMPLETED"):
        act(run)
        durable.advance_time(seconds=10)
    assert (run.status, str(run.error).count("enough")) == ("CANCELLED", 1)
    done = dict(effects())
    assert set(done.values()) == {1}
    assert done.keys() > KEPT
    assert "ann nobody True ['by signal', 'by update'] 2 handed back" in done
    assert "8 a b c [('x', 'lucky'), ('y', 6), ('z', None)] quick spawned ('m1', 'm2', 'm3')" in done


@pytest.mark.django_db
def test_it_does_everything_once(durable: Harness) -> None:
    once(durable)


@pytest.mark.django_db
@override_settings(USE_TZ=False, TIME_ZONE="America/New_York")
def test_it_does_so_in_a_project_without_time_zones(durable: Harness) -> None:
    once(durable)


@pytest.mark.django_db
@pytest.mark.timeout(600)
def test_no_crash_changes_what_it_does(durable: Harness) -> None:
    report = crash(durable, sample=1)  # of each name
    assert len(report.points) > 300
    assert {point.name for point in report.points} == set(faults.POINTS) - NOT_PASSED


@pytest.mark.nightly
@pytest.mark.timeout(3600)
@pytest.mark.on("sqlite", "memory")  # hours on a server, where the sample above and the chaos suite stand for it
@pytest.mark.django_db
def test_no_crash_anywhere_changes_what_it_does(durable: Harness) -> None:
    assert len(crash(durable).points) > 300


@pytest.mark.nightly
@pytest.mark.timeout(3600)
@pytest.mark.on("sqlite", "memory")  # killed processes work on copies of SQLite files
@pytest.mark.django_db(transaction=True)
def test_no_process_killed_changes_what_it_does(durable: Harness) -> None:
    crash(durable, real=True, sample=100)
