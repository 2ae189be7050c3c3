"""O-03: whatever waits, waits in the database: RabbitMQ holds no delivery unacknowledged for longer than work takes."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import kombu
import pytest
from amqp.exceptions import PreconditionFailed
from celery import Celery
from django.utils import timezone

from django_app.models import StepResult
from tests.effects import effects
from tests.processes import Worker, eventually
from tests.project.testapp.case_waiting import waiting_long
from tests.services import Service, rabbitmq

pytestmark = [
    pytest.mark.prefork,
    pytest.mark.django_db(transaction=True),
    pytest.mark.timeout(600),
    pytest.mark.on("mariadb", "rabbitmq"),
]

CONTROL = "o03-control"
UNACKED = "messages_unacknowledged"


def test_o03_a_worker_holds_no_delivery_while_a_workflow_sleeps_and_backs_off(
    start_worker: Callable[..., Any], strict_rabbitmq: Service
) -> None:
    """The server gives up a channel with a delivery unacknowledged for 4 s: meanwhile it gives up one of ours."""
    worker, handle = start(start_worker, strict_rabbitmq, 3600)
    assert held_by_workers(strict_rabbitmq) == []
    assert_the_server_gives_up_a_channel(strict_rabbitmq)
    assert held_by_workers(strict_rabbitmq) == []
    assert (state_of("step"), state_of("timer")) == ("RETRYING", "SCHEDULED")
    rows = StepResult.objects.filter(due_at__isnull=False)
    assert rows.update(due_at=timezone.now(), look_at=timezone.now()) == 2  # the hour is over
    assert_ended_in_good_order(worker, handle)


@pytest.mark.nightly
def test_o03_no_delivery_is_unacknowledged_through_two_minutes_of_waiting(
    start_worker: Callable[..., Any], strict_rabbitmq: Service
) -> None:
    worker, handle = start(start_worker, strict_rabbitmq, 120)
    looks = 0
    while state_of("timer") == "SCHEDULED":
        held = {name: count for name, count in rabbitmq.queues(strict_rabbitmq, UNACKED).items() if count != "0"}
        if (state_of("step"), state_of("timer")) != ("RETRYING", "SCHEDULED"):
            break  # over while we asked
        assert held == {}, "a delivery is held while the workflow only waits"
        looks += 1
        time.sleep(1)
    assert looks >= 3
    assert_ended_in_good_order(worker, handle)


def start(start_worker: Callable[..., Any], server: Service, seconds: float) -> tuple[Worker, Any]:
    """A worker on this server, and a workflow that sleeps and has a step backing off for so long."""
    worker = start_worker(env={"TEST_BROKER_URL": server.url, "TEST_DURABLE_CELERY": '{"TICK": 0.5}'})
    handle = waiting_long.start("o03", seconds)
    eventually(lambda: state_of("step") == "RETRYING" and state_of("timer") == "SCHEDULED", "both waits", seconds=90)
    return worker, handle


def state_of(kind: str) -> str | None:
    rows = StepResult.objects.filter(kind=kind).exclude(name__endswith="say")
    return rows.values_list("state", flat=True).first()


def held_by_workers(server: Service) -> list[Any]:
    """What the workers have received and not acknowledged: reserved, or held for its time."""
    with Celery(broker=server.url, set_as_current=False) as app:
        inspect = app.control.inspect(timeout=60, limit=1)
        answers: list[Any] = [inspect.reserved(), inspect.scheduled()]
    assert all(answers), "no worker answered"
    return [task for answer in answers for tasks in answer.values() for task in tasks]


def assert_the_server_gives_up_a_channel(server: Service) -> None:
    """A delivery that is held costs its channel, on this very server."""
    with kombu.Connection(server.url) as connection:
        channel = connection.channel()
        queue = kombu.Queue(CONTROL, channel=channel, durable=False, auto_delete=True)
        queue.declare()
        kombu.Producer(channel).publish("held", routing_key=CONTROL)
        kombu.Consumer(channel, [queue], callbacks=[lambda body, message: None]).consume()
        with pytest.raises(PreconditionFailed, match="acknowledgement on channel"):
            drain(connection)


def drain(connection: Any) -> None:
    for _ in range(120):
        with suppress(TimeoutError):
            connection.drain_events(timeout=1)


def assert_ended_in_good_order(worker: Worker, handle: Any) -> None:
    assert handle.result(timeout=120) == ["x", 2]
    assert effects("o03") == {"x": 1, "unlucky": 2}
    for words in ("PreconditionFailed", "PRECONDITION_FAILED", "Connection to broker lost"):
        assert words not in worker.text()
