"""O-08: a worker that lives and takes nothing any more after its broker came back; either all ends, or the doctor says
which queue waits."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta
from io import StringIO
from typing import Any
from urllib.parse import urlsplit

import pytest
from django.core.management import call_command

from django_app.models import StepAttempt
from durable_celery import Workflow, step, workflow
from tests.effects import effects
from tests.processes import Worker, eventually
from tests.project.testapp.workflows import sequence
from tests.pump import Pump
from tests.services import redis
from tests.services.service import Service

pytestmark = pytest.mark.django_db(transaction=True)

COUNT, STEPS = 20, 3


@step
def work(number: int) -> int:
    return number


@workflow
def working(number: int) -> Workflow[int]:
    return (yield from work(number))


def assert_healthy(answer: tuple[int, Any]) -> None:
    code, told = answer
    assert (code, told["ok"], told["findings"]) == (0, True, [])


def doctor(*options: str) -> tuple[int, dict[str, Any]]:
    out = StringIO()
    try:
        call_command("durable", "doctor", "--json", *options, stdout=out, stderr=StringIO())
    except SystemExit as end:
        return int(end.code or 0), json.loads(out.getvalue())
    return 0, json.loads(out.getvalue())


@pytest.mark.parametrize("taken", ["nothing", "the first turns", "first attempts"])
def test_o08_the_doctor_names_the_queue_from_which_nothing_is_taken(pump: Pump, taken: str) -> None:
    """The worker holds its lease and ticks, so by those alone it is in good health."""
    handles = [working.using(queue="slow").start(number) for number in range(3)]
    if taken != "nothing":
        for hint in list(pump.queue):
            pump.deliver(hint)
    if taken == "first attempts":
        pump.kill_at("body.before")
        pump.deliver(next(hint for hint in pump.queue if hint.step is not None))
    for _ in range(59):
        pump.now += timedelta(seconds=1)
        pump.tick()
    assert_healthy(doctor())  # the documented period is 60 s
    pump.now += timedelta(seconds=12)
    pump.tick()
    code, told = doctor()
    assert code == 1
    assert {finding["id"] for finding in told["findings"]} == {"unclaimed"}
    assert sum(finding["count"] for finding in told["findings"]) == 3
    queue = "queue 'slow'" if taken == "nothing" else "the default queue"
    assert all(queue in finding["text"] and "the oldest since" in finding["text"] for finding in told["findings"])

    pump.finish()  # the worker is started again
    assert [handle.result(timeout=0) for handle in handles] == [0, 1, 2]
    pump.tick()
    assert_healthy(doctor())


@pytest.fixture
def server() -> Iterator[list[Service]]:
    """A Redis of this test alone, which it may stop and start on one port."""
    before = redis.start()
    if before is None:
        pytest.skip("no redis-server here")
    services = [before]
    yield services
    services[-1].stop()


@pytest.mark.kill
@pytest.mark.prefork
@pytest.mark.timeout(180)
def test_o08_all_ends_though_redis_goes_away_twice(start_worker: Any, server: list[Service]) -> None:
    options = '{"LEASE": 5, "TICK": 0.2, "INLINE_STEPS": 0}'
    env = {"TEST_BROKER": "redis", "TEST_BROKER_URL": server[0].url, "TEST_DURABLE_CELERY": options}
    port = urlsplit(server[0].url).port
    worker = start_worker(env=env)
    handles = [sequence.start(f"o08 {number}", STEPS) for number in range(COUNT)]
    for wanted in (1, 10):
        eventually(lambda wanted=wanted: worker.ended() or done(handles, steps=wanted), "work under way")
        server[-1].stop()
        restarted = redis.start(port)
        assert restarted is not None
        server.append(restarted)
    if not ends(handles, worker):
        assert told_by_the_doctor(worker)
        worker.clear()
        start_worker(env=env)
    assert [handle.result(timeout=60) for handle in handles] == [[f"step {n}" for n in range(STEPS)]] * COUNT
    for handle in handles:
        for entry in handle.history():
            # The step a worker was in when it went down is lost with it, and seen to be; no other runs again.
            lost = StepAttempt.objects.filter(step__instance_id=handle.id, step__position=entry.position)
            assert set(lost.values_list("outcome", flat=True)) <= {"lost"}
            assert entry.attempts == 1 + lost.count()
    assert most_executions(handles) <= 1 + StepAttempt.objects.filter(outcome="lost").count()


def ends(handles: list[Any], worker: Worker) -> bool:
    """Whether all ends; not so if the worker takes nothing any more, or kombu brought it down when it reconnected."""
    try:
        eventually(lambda: ended(handles) or worker.ended(), "the end of all", seconds=60)
    except AssertionError:
        return False
    return ended(handles)


def told_by_the_doctor(worker: Worker) -> bool:
    """Of a worker that lives and consumes nothing, the queue; of one that is gone, that there is none."""
    wanted = {"workers", "unclaimed"} if worker.ended() else {"unclaimed"}

    def told() -> bool:
        code, answer = doctor("--patience", "5")
        return code == 1 and bool(wanted & {finding["id"] for finding in answer["findings"]})

    eventually(told, "a finding of the doctor", seconds=30)
    return True


def most_executions(handles: list[Any]) -> int:
    return max(max(effects(f"o08 {number}").values()) for number in range(len(handles)))


def done(handles: list[Any], steps: int) -> bool:
    return sum(len(effects(f"o08 {number}")) for number in range(len(handles))) >= steps


def ended(handles: list[Any]) -> bool:
    return all(handle.status == "COMPLETED" for handle in handles)
