"""`atomic` steps in real processes: kills at random points, and time limits that strike in the middle of a query."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.atomic_kills import kill_and_count
from tests.project.testapp.case_atomic import ENTRIES, dawdling
from tests.project.testapp.models import Effect

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.mark.kill
@pytest.mark.timeout(240)
def test_an_atomic_step_under_random_kills_has_as_many_effects_as_results(tmp_path: Path) -> None:
    report = kill_and_count(10, tmp_path, seed=7, gap=1, odds=0.05)
    print("\n".join(report.lines()))
    assert report.kills.total() >= 10
    assert report.deaths > 0
    assert (report.torn, report.unfinished) == ([], [])
    assert report.effects == ENTRIES * report.results > 0


@pytest.mark.prefork
@pytest.mark.parametrize("where", ["sleep", pytest.param("query", marks=pytest.mark.server)])
def test_a_time_limit_in_the_body_takes_its_effects_back(start_worker, where: str) -> None:
    worker = start_worker(concurrency=1)
    handle = dawdling.start(where, 1, where)
    assert handle.result(timeout=40) == 1
    assert list(Effect.objects.values_list("run", "what")) == [(where, "attempt 2")]
    entry = handle.history()[0]
    assert (entry.state, entry.attempts) == ("SUCCEEDED", 2)
    assert len(worker.children()) == 1
