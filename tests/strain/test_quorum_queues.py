"""RabbitMQ with quorum queues, which know no prefetch for a whole connection and hold ETAs in queues of their own."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import kombu
import pytest

from tests.effects import effects
from tests.project.testapp.workflows import dying, napping, parallel, retrying, sequence
from tests.services import Service

pytestmark = [pytest.mark.prefork, pytest.mark.django_db(transaction=True), pytest.mark.on("mariadb", "rabbitmq")]


@pytest.mark.kill
@pytest.mark.timeout(300)
@pytest.mark.parametrize("exchange", ["direct", pytest.param("topic", marks=pytest.mark.nightly)])
def test_workflows_on_quorum_queues_end_once_with_retries_sleeps_and_a_killed_child(
    start_worker: Callable[..., Any], strict_rabbitmq: Service, tmp_path: Any, exchange: str
) -> None:
    """A topic exchange is what Celery's own delayed delivery asks for; Celery's default is a direct one."""
    celery = {
        "task_default_queue": f"quorum-{exchange}", "task_default_queue_type": "quorum",
        "task_default_exchange": f"quorum-{exchange}", "task_default_exchange_type": exchange,
    }  # fmt: skip
    env = {
        "TEST_BROKER_URL": strict_rabbitmq.url,
        "TEST_CELERY": json.dumps(celery),
        "TEST_DURABLE_CELERY": '{"TICK": 0.3, "LEASE": 4}',
    }
    worker = start_worker(concurrency=2, env=env)
    handles: list[Any] = [
        *sequence.start_many([("quorum", 3)] * 3), parallel.start("quorum", 5), retrying.start("quorum", 2),
        napping.start("quorum", 1),
    ]  # fmt: skip
    results = [handle.result(timeout=120) for handle in handles]
    assert results[:3] == [["step 0", "step 1", "step 2"]] * 3
    marks = tmp_path / "marks"
    marks.mkdir()
    killed = dying.start("killed", str(marks), 1)
    assert killed.result(timeout=120) == 1
    assert effects("killed") == {"die": 2}
    counts = effects("quorum")
    assert (counts["step 0"], counts["member 0"], counts["flaky"], counts["before"], counts["after"]) == (3, 1, 3, 1, 1)
    assert left_in(strict_rabbitmq, f"quorum-{exchange}") == 0
    for words in (
        "NOT_IMPLEMENTED",
        "PRECONDITION_FAILED",
        "Unrecoverable error",
        "Direct exchanges are not supported",
    ):
        assert words not in worker.text()


def left_in(server: Service, name: str) -> int:
    """How many messages are ready in this quorum queue; of another kind the server would refuse to declare it so."""
    with kombu.Connection(server.url) as connection:
        arguments = {"x-queue-type": "quorum"}
        queue = kombu.Queue(name, channel=connection.channel(), durable=True, queue_arguments=arguments)
        declared: Any = queue.queue_declare()
        return int(declared.message_count)
