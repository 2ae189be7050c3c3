"""A look into the broker of this run, and a way to take from it."""

from __future__ import annotations

import json
from typing import Any

from tests.project.celery import app


def waiting_messages() -> int:
    """How many messages lie in the queue of the tests, taken up by nobody."""
    with app.connection_for_read() as connection:
        channel: Any = connection.default_channel
        queue = app.amqp.queues[app.conf.task_default_queue]
        # Not passive: Redis has no empty lists.
        answer = channel.queue_declare(queue.name, durable=queue.durable, auto_delete=queue.auto_delete)
        return int(answer.message_count)


def lose_messages() -> int:
    """Empty the queue: what was sent never arrives. Returns how many there were."""
    return int(app.control.purge())


def redis_messages() -> list[dict[str, Any]]:
    """Everything in this run's Redis database, whether it waits or was taken up and not acknowledged."""
    found = []
    with app.connection_for_read() as connection:
        client: Any = connection.default_channel.client  # type: ignore[attr-defined]
        for key in client.keys("*"):
            kind = client.type(key)
            if kind == b"list":
                found += [json.loads(text) for text in client.lrange(key, 0, -1)]
            elif kind == b"hash":
                found += [json.loads(text)[0] for text in client.hvals(key)]
    return found


def redis_unacknowledged() -> int:
    """How many messages were taken up and not acknowledged."""
    with app.connection_for_read() as connection:
        client: Any = connection.default_channel.client  # type: ignore[attr-defined]
        return int(client.hlen("unacked"))
