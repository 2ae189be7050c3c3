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

from durable_celery import Workflow, step, workflow
from tests.effects import effects
from tests.processes import eventually
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
    assert doctor() == (0, {"ok": True, "findings": []})  # the documented period is 60 s
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
    assert doctor() == (0, {"ok": True, "findings": []})


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
        eventually(lambda wanted=wanted: done(handles, steps=wanted), "work under way")
        server[-1].stop()
        restarted = redis.start(port)
        assert restarted is not None
        server.append(restarted)
    try:
        eventually(lambda: ended(handles), "the end of all", seconds=75)
    except AssertionError:
        assert not worker.ended()
        code, told = doctor("--patience", "30")
        assert code == 1
        assert any(finding["id"] == "unclaimed" and "queue" in finding["text"] for finding in told["findings"])
        worker.kill()
        start_worker(env=env)
    assert [handle.result(timeout=60) for handle in handles] == [[f"step {n}" for n in range(STEPS)]] * COUNT
    for number in range(COUNT):
        assert effects(f"o08 {number}") == {f"step {n}": 1 for n in range(STEPS)}


def done(handles: list[Any], steps: int) -> bool:
    return sum(len(effects(f"o08 {number}")) for number in range(len(handles))) >= steps


def ended(handles: list[Any]) -> bool:
    return all(handle.status == "COMPLETED" for handle in handles)
