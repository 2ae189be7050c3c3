"""Two live workers of one name never take each other's work: a rolling deploy has both for a while."""

from __future__ import annotations

import pytest

from django_app.models import StepAttempt, StepResult, WorkerLease
from tests.effects import effects
from tests.processes import Worker, eventually
from tests.project.surroundings import RUN
from tests.project.testapp.case_kills import lingering_in

LEASE = 1.5  # seconds
RUNS = ("one", "two")

pytestmark = [pytest.mark.prefork, pytest.mark.kill, pytest.mark.django_db(transaction=True)]


def start_namesake(start_worker, run: str) -> Worker:
    """A worker of the one name, for the queue of this run alone."""
    worker: Worker = start_worker(
        env={
            "TEST_DURABLE_CELERY": f'{{"LEASE": {LEASE}, "TICK": 0.2}}',
            # On RabbitMQ Celery lets no second worker of a name in unless it is told to.
            "TEST_CELERY": '{"control_queue_exclusive": false}',
        },
        arguments=["-n", "pod-1@h", "-Q", queue(run)],
        concurrency=1,
        ready=False,
    )
    return worker


def queue(run: str) -> str:
    return f"tests-{RUN}-{run}"


@pytest.fixture
def gate(tmp_path):
    """The file that lets the steps end."""
    return tmp_path / "gate"


def both_at_work(start_worker, gate):
    """The handles of two instances and their two workers of one name, each in its step for two lengths of a lease."""
    handles = {run: lingering_in.using(queue=queue(run)).start(run, str(gate), queue(run)) for run in RUNS}
    workers = {run: start_namesake(start_worker, run) for run in RUNS}
    eventually(lambda: all(effects(run)["lingering"] for run in RUNS), "both steps to run", seconds=60)
    for run in RUNS:
        assert owner(handles[run], workers) == run
    began = {lease.pk: lease.expires_at for lease in WorkerLease.objects.all()}
    assert len(began) == 2

    def outlived() -> bool:
        leases = WorkerLease.objects.filter(pk__in=began)
        return all((lease.expires_at - began[lease.pk]).total_seconds() > 2 * LEASE for lease in leases)

    eventually(outlived, "both leases to be renewed for twice their length")
    return handles, workers


def test_two_live_workers_of_one_name_never_take_each_others_work(start_worker, gate):
    handles, workers = both_at_work(start_worker, gate)
    for run, handle in handles.items():
        row = step_of(handle)
        assert (row.state, row.attempt, row.deaths, row.expiries) == ("RUNNING", 1, 0, 0)
        assert owner(handle, workers) == run
    assert WorkerLease.objects.filter(node="pod-1@h", dead_at=None).count() == 2

    gate.touch()
    for run, handle in handles.items():
        assert handle.result(timeout=30) == "lingering"
        assert effects(run) == {"lingering": 1}
    assert StepAttempt.objects.count() == 0


def test_the_death_of_a_worker_gives_back_its_own_work_and_none_of_its_namesake(start_worker, gate):
    handles, workers = both_at_work(start_worker, gate)
    workers["two"].kill()
    eventually(lambda: step_of(handles["two"]).deaths == 1, "its namesake to find it dead")
    start_namesake(start_worker, "two")
    eventually(lambda: effects("two")["lingering"] == 2, "its step to run again", seconds=60)
    gate.touch()
    assert [handle.result(timeout=30) for handle in handles.values()] == ["lingering"] * 2

    kept = step_of(handles["one"])
    assert (kept.state, kept.attempt, kept.deaths, kept.expiries) == ("SUCCEEDED", 1, 0, 0)
    given_back = step_of(handles["two"])
    assert (given_back.state, given_back.attempt, given_back.deaths) == ("SUCCEEDED", 2, 1)
    assert [effects(run)["lingering"] for run in RUNS] == [1, 2]


def test_a_worker_that_stops_leaves_its_namesake_its_lease_and_its_step(start_worker, gate):
    handles, workers = both_at_work(start_worker, gate)
    third = start_namesake(start_worker, "none").wait_until_ready()
    assert third.stop() == 0
    for run, handle in handles.items():
        assert (step_of(handle).state, owner(handle, workers)) == ("RUNNING", run)
    assert WorkerLease.objects.filter(node="pod-1@h", dead_at=None).count() == 2

    gate.touch()
    assert [handle.result(timeout=30) for handle in handles.values()] == ["lingering"] * 2
    assert [effects(run) for run in RUNS] == [{"lingering": 1}] * 2
    assert StepAttempt.objects.count() == 0


def step_of(handle) -> StepResult:
    row: StepResult = StepResult.objects.get(instance_id=handle.id)
    return row


def owner(handle, workers: dict[str, Worker]) -> str:
    """Whose worker holds the lease that the running step was claimed under."""
    pid = WorkerLease.objects.get(pk=step_of(handle).lease_id).pid
    return next(run for run, worker in workers.items() if worker.pid == pid)
