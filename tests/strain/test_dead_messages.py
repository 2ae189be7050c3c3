"""Very many messages that come to nothing, in front of a healthy queue: what is due happens all the same."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from kombu import Queue

from django_app.models import StepResult
from durable_celery.celery.transport import ADVANCE, HEADER
from tests.effects import effects
from tests.processes import eventually
from tests.project.celery import app
from tests.project.testapp.workflows import napping, sequence

pytestmark = [pytest.mark.prefork, pytest.mark.django_db(transaction=True), pytest.mark.timeout(900)]

DEAD = "dead-messages"
LATE = timedelta(seconds=2)


@pytest.mark.parametrize("number", [
    pytest.param(6000, marks=pytest.mark.on("postgres", "redis")),
    pytest.param(40_000, marks=[pytest.mark.nightly, pytest.mark.fanout]),
])  # fmt: skip
def test_timers_and_steps_go_on_beside_a_queue_of_dead_messages(
    start_worker: Callable[..., Any], request: pytest.FixtureRequest, number: int
) -> None:
    send_dead(number)
    assert left() == number
    own = app.conf.task_default_queue
    start_worker(concurrency=2, arguments=["-Q", f"{DEAD},{own}"], env={"TEST_LOG_LEVEL": "WARNING"}, ready=False)
    handles: list[Any] = [*(napping.start("beside", 1) for _ in range(5)), *sequence.start_many([("beside", 3)] * 3)]
    results = [handle.result(timeout=300) for handle in handles]
    assert results == ["after"] * 5 + [["step 0", "step 1", "step 2"]] * 3
    assert left() > 0, "all that while dead messages stood in front"
    counts = effects("beside")
    assert (counts["before"], counts["after"], counts["step 0"], counts["step 2"]) == (5, 5, 3, 3)
    timers = list(StepResult.objects.filter(kind="timer"))
    assert [timer.finished_at for timer in timers] == [timer.due_at for timer in timers]
    if request.config.getoption("--nightly"):
        late = max(timer.taken_at - timer.due_at for timer in timers)
        print(f"{number} dead messages, {left()} left: the latest timer {late.total_seconds():.2f} s late")
        assert late < LATE
    else:
        app.control.purge()
    eventually(lambda: not StepResult.objects.exclude(deaths=0).exists(), "no death")


def send_dead(number: int) -> None:
    """Hints at instances that are there no more."""
    with app.producer_or_acquire() as producer:
        for _ in range(number):
            app.send_task(
                ADVANCE, queue=DEAD, producer=producer, headers={HEADER: {"instance": str(uuid4())}}, ignore_result=True
            )


def left() -> int:
    with app.connection_for_read() as connection:
        queue = Queue(DEAD, channel=connection.channel(), durable=True)
        declared: Any = queue.queue_declare()
        return int(declared.message_count)


@pytest.fixture(autouse=True)
def _empty() -> Iterator[None]:
    yield
    with app.connection_for_write() as connection:
        Queue(DEAD, channel=connection.channel(), durable=True).delete()
    app.amqp.queues.pop(DEAD, None)
