"""A kill at any point between two statements changes nothing in the outcome: neither at a fault point, nor before any
statement or commit, nor of a real process. A step may run once more for it, at most."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from django.db import connection

from django_app.models import StepResult
from durable_celery import WorkflowFailed, faults
from tests.effects import effects
from tests.processes import eventually
from tests.project.testapp.case_kills import all_sorts, go_on
from tests.pump import Killed, Pump

# In the process that starts and sends, not in a worker; or with nothing but what is in memory up to one below.
OTHERS = {
    "start.in_transaction", "start.after_commit", "send.in_transaction", "send.after_commit",
    "message.turn", "message.step", "claim.in_statement", "tick.begins", "tick.judged", "tick.after_act", "tick.ends",
}  # fmt: skip
POINTS = (
    "claim.before",
    "claim.after_commit",
    "body.before",
    "body.after",
    "record.before",
    "step.in_transaction",
    "record.after",
    "turn.before_body",
    "turn.before_commit",
    "turn.begins",
    "turn.swapped",
    "turn.related",
    "turn.in_transaction",
    "turn.after_commit",
    "publish.before",
    "publish.after",
    "tick.before_act",
)
BODIES = {"plain": 1, "unlucky": 2, "plain, lucky, now": 1, "hopeless": 1, "taken back": 1}
JOURNAL = [
    ("step", "SUCCEEDED", "plain"),
    ("step", "SUCCEEDED", "lucky"),
    ("signal", "SUCCEEDED", "now"),
    ("timer", "SUCCEEDED", None),
    ("step", "SUCCEEDED", "plain, lucky, now"),
    ("step", "FAILED", None),
    ("compensation", "SUCCEEDED", "taken back"),
]
STRIDE = 10  # of the statements, so many are passed over; by night none is
runs = count(1)


@pytest.fixture
def pump(transactional_db: None) -> Iterator[Mortal]:
    with Mortal() as pump:
        yield pump


class Mortal(Pump):
    """Its processes can die before any of their statements and commits, too."""

    def __init__(self) -> None:
        self.statements = 0
        self.dies_at = 0
        self.deaths = 0
        self._counts = False
        super().__init__(lease=timedelta(seconds=2))

    def deliver(self, hint: Any) -> Any:
        with self._counting(True):
            return super().deliver(hint)

    def tick(self) -> Any:
        with self._counting(True):
            return super().tick()

    def keep_lease(self) -> None:
        with self._counting(False):
            super().keep_lease()

    def die_at_statement(self, number: int) -> None:
        self.statements, self.dies_at = 0, number

    def statement(self, execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        self.reach_statement()
        return execute(sql, params, many, context)

    def reach_statement(self) -> None:
        if self._counts:
            self.statements += 1
            if self.statements == self.dies_at:
                raise Killed

    def _bury(self) -> None:
        self.deaths += 1
        super()._bury()

    @contextmanager
    def _counting(self, on: bool) -> Iterator[None]:
        before, self._counts = self._counts, on
        try:
            yield
        finally:
            self._counts = before


def run_it(pump: Pump) -> tuple[str, Any]:
    """One instance from its start to its end, the signal sent when it waits for nothing else."""
    run = f"run {next(runs)}"
    handle = all_sorts.start(run)
    pump.finish()
    go_on.send(handle, "now")
    pump.finish()
    return run, handle


def assert_outcome(run: str, handle: Any, *, extra: int) -> int:
    """The outcome of a run without faults, of which `extra` bodies may have run once more; returns how many did."""
    assert handle.status == "FAILED"
    with pytest.raises(WorkflowFailed, match="hopeless") as failed:
        handle.result(timeout=0)
    assert "never" in failed.value.message
    history = handle.history()
    assert [(entry.kind, entry.state, entry.result) for entry in history] == JOURNAL
    assert len({entry.position for entry in history}) == len(history)
    rows = StepResult.objects.filter(instance_id=handle.id)
    assert rows.count() == len(history)
    assert not rows.filter(token__isnull=False).exists()
    done = effects(run)
    assert done.keys() == BODIES.keys()
    more = Counter({body: done[body] - BODIES[body] for body in BODIES})
    assert min(more.values()) >= 0
    assert sum(more.values()) <= extra
    return sum(more.values())


# -- one process dies, once -------------------------------------------------------------------------------------------


def test_the_points_at_which_a_process_may_die_are_all_reached_by_the_workflow_of_these_tests(pump):
    reached: Counter[str] = Counter()
    faults.set_hook(lambda name: reached.update([name]))
    run, handle = run_it(pump)
    assert set(POINTS) == set(reached) - OTHERS
    assert assert_outcome(run, handle, extra=0) == 0


@pytest.mark.parametrize("proven", [True, False], ids=["seen by its parent", "seen by nobody"])
@pytest.mark.parametrize("point", POINTS)
def test_a_kill_at_a_fault_point_changes_nothing_in_the_outcome(pump, point, proven, request):
    some = (1, 4) if proven else (2, 6)
    every = range(1, 100)
    for number, nth in enumerate(every if request.config.getoption("--nightly") else some, start=1):
        pump.kill_at(point, nth, proven=proven)
        run, handle = run_it(pump)
        assert_outcome(run, handle, extra=1)
        if pump.deaths < number:
            break  # the point is not reached so often
    assert pump.deaths > 0


@pytest.mark.parametrize("first", [1, *(pytest.param(n, marks=pytest.mark.nightly) for n in range(2, STRIDE + 1))])
def test_a_kill_before_any_statement_or_commit_changes_nothing_in_the_outcome(pump, monkeypatch, first):
    real: Any = connection
    commit = real._commit

    def mortal_commit() -> None:
        try:
            pump.reach_statement()
        except Killed:
            real._rollback()  # as the server does when the connection breaks
            raise
        commit()

    monkeypatch.setattr(connection, "_commit", mortal_commit)
    with connection.execute_wrapper(pump.statement):
        for number in count(first, STRIDE):
            pump.die_at_statement(number)
            run, handle = run_it(pump)
            assert_outcome(run, handle, extra=1)
            if pump.statements < number:
                break
    assert pump.deaths > 50 / STRIDE


# -- real processes die, often ----------------------------------------------------------------------------------------


@pytest.mark.kill
@pytest.mark.prefork
@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    "waves", [1, pytest.param(5, marks=[pytest.mark.nightly, pytest.mark.timeout(600)])], ids=["once", "often"]
)
def test_real_processes_killed_at_every_fault_point_change_nothing_in_the_outcome(start_worker, tmp_path, waves):
    kills = tmp_path / "kills"
    kills.mkdir()
    environment = {"TEST_KILLS": str(kills), "TEST_DURABLE_CELERY": '{"MAX_DEATHS": 20, "LEASE": 2, "TICK": 0.2}'}
    workers = [start_worker(env=environment)]

    def left(point: str) -> bool:
        """Whether nobody died there yet; replaces a worker whose main process did, by it or by an earlier one."""
        if workers[-1].ended():
            workers.append(start_worker(env=environment))
        return Path(kills, point).exists()

    handles = {}
    for number, point in enumerate(POINTS * waves):
        run = f"run {next(runs)} of {os.getpid()}"
        Path(kills, point).touch()
        handles[run] = handle = all_sorts.start(run)
        if number % 2:
            go_on.send(handle, "now")
        eventually(lambda point=point: not left(point), f"a death at {point}", seconds=60)
        if not number % 2:
            go_on.send(handle, "now")
    for handle in handles.values():
        eventually(lambda handle=handle: left("") and handle.status == "FAILED", "its end", seconds=60)

    # A main process that dies takes two children with it, sooner or later.
    most = len(POINTS) * waves + 2 * (len(workers) - 1)
    for run, handle in handles.items():
        most -= assert_outcome(run, handle, extra=most)
