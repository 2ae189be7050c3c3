"""The doors to the broker, and to the floor above."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Protocol
from uuid import UUID

from durable_celery.ports.tasks import TaskCall, TaskEnd
from durable_celery.ports.turn import Dispatch, Wake


class Transport(Protocol):
    """Everything the engine asks of the broker. A message is a hint: failure is remembered, never raised."""

    def dispatch(self, dispatches: Sequence[Dispatch], now: datetime) -> int:
        """Publish step messages (ids only); returns how many went out. At most PUBLISH_TIMEOUT in total."""

    def advance(self, instance_id: UUID, queue: str = "", *, delay: float = 0) -> bool:
        """Publish a hint that this instance has something to do."""

    def advance_all(self, wakes: Sequence[Wake]) -> int:
        """The same for many; returns how many went out. At most PUBLISH_TIMEOUT in total."""

    def queue_of(self, queue: str = "", step: str = "") -> str:
        """Where hints go for instances with this queue, or messages of this ``step``; "" where nobody can say yet."""

    def task(self, name: str) -> Any:
        """The Celery task of that name on the current app, for plain ``.delay()`` and the like."""

    def adapt(self, yielded: Any) -> Any:
        """The command a Celery signature stands for, or None if it is no signature."""

    def plain(self, canvas: Any) -> Any:
        """A Celery signature as plain data that ``adapt`` takes too; None if it is none, or has no durable form."""

    def run_task(self, call: TaskCall) -> TaskEnd:
        """Run an attempt of an existing task as Celery would: request, hooks, signals and log lines of its own."""


class Client(Protocol):
    """What definitions ask of the floor above them: starting instances and sending to them."""

    def start(self, definition: Any, calls: Sequence[tuple[tuple[Any, ...], dict[str, Any]]], options: Any, /) -> Any:
        """Start one instance a call; a list of handles in order."""

    def get(self, name: str, key: str) -> Any:
        """The handle of the instance with that key."""

    def signal(self, target: Any, name: str, payload: Any, signal_id: str | None) -> None:
        """Send a message to a handle, instance or id."""
