"""What the tests of publishing send, and what they find in the queue."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any

from durable_celery.celery.transport import CeleryTransport
from durable_celery.conf import Settings
from durable_celery.ports import Dispatch

NOW = datetime(2026, 1, 1, tzinfo=timezone.utc)


def transport_on(app: Any, **settings: Any) -> CeleryTransport:
    return CeleryTransport(Settings(**settings), lambda: app)


def messages_in(app: Any, queue: str | None = None) -> list[Any]:
    """Everything in the queue, taken out."""
    found = []
    with (
        app.connection_for_read() as connection,
        connection.SimpleQueue(queue or app.conf.task_default_queue) as simple,
    ):
        while simple.qsize():
            message = simple.get(block=False)
            message.ack()
            found.append(message)
    return found


def one(**changes: Any) -> Dispatch:
    return Dispatch(**{"step_id": 42, "name": "shop.charge", "close_after": 30.0, **changes})
