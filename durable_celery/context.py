"""What a step body may ask about the attempt it runs in."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from durable_celery.errors import UsageError

_current: ContextVar[CurrentStep | None] = ContextVar("durable_celery_step", default=None)


class CurrentStep:
    """The attempt being run.

    ``idempotency_key`` is the same on every attempt and redelivery. ``attempt`` counts starts, this one included.
    ``instance_id`` and ``token`` are empty outside a workflow. ``last_heartbeat`` holds the details the last heartbeat
    of this step gave, of earlier attempts too.
    """

    __slots__ = (
        "_beat",
        "_look",
        "_told",
        "attempt",
        "idempotency_key",
        "instance_id",
        "last_heartbeat",
        "name",
        "token",
    )

    def __init__(
        self,
        *,
        name: str,
        idempotency_key: str,
        attempt: int = 1,
        instance_id: str = "",
        token: str = "",
        last_heartbeat: Any = None,
        beat: Callable[[Any], bool] | None = None,
        look: Callable[[], bool] | None = None,
    ) -> None:
        self.name = name
        self.idempotency_key = idempotency_key
        self.attempt = attempt
        self.instance_id = instance_id
        self.token = token
        self.last_heartbeat = last_heartbeat
        self._told = False
        self._beat = beat
        self._look = look

    @property
    def cancel_requested(self) -> bool:
        """Whether the body should stop: its instance is being cancelled, or nobody waits for this attempt any more.
        Cheap to ask often: at most one look a second goes to the database. Asking is no sign of life."""
        if not self._told and self._look is not None:
            self._told = self._look()
        return self._told

    def heartbeat(self, details: Any = None) -> None:
        """Say that the body is alive, and keep ``details`` for the next attempt. Cheap to call often: at most one write
        a second (more with a short ``heartbeat_timeout``) goes to the database. Learns ``cancel_requested`` as well."""
        if details is not None:
            self.last_heartbeat = details
        if self._beat is not None and self._beat(details):
            self._told = True


def current_step() -> CurrentStep:
    """The attempt whose body is running on this thread; ``UsageError`` outside a step body."""
    found = _current.get()
    if found is None:
        raise UsageError("current_step() works only in the body of a step, on the thread that runs it")
    return found


@contextmanager
def running(step: CurrentStep) -> Iterator[CurrentStep]:
    """Puts ``step`` in place for the body."""
    token = _current.set(step)
    try:
        yield step
    finally:
        _current.reset(token)


def plain(name: str, task_id: str | None = None) -> CurrentStep:
    """The context of a body that runs without durability: a fresh key, or the Celery task id as key."""
    return CurrentStep(name=name, idempotency_key=task_id or str(uuid.uuid4()))
