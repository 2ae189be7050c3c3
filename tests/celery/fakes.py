"""A runtime without a database, for adapters that only need somebody to talk to."""

from __future__ import annotations

import threading
from datetime import datetime, timedelta, timezone
from typing import Any
from uuid import UUID

from durable_celery import runtime
from durable_celery.conf import Settings
from durable_celery.ports import Lease


class FakeStore:
    """Keeps leases in memory. ``down`` makes every call fail, as a database that is away does."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.leases: dict[UUID, Lease] = {}
        self.dead: set[UUID] = set()
        self.calls: list[str] = []
        self.closed_by: list[int] = []
        self.down = False

    def _called(self, name: str) -> None:
        with self.lock:
            self.calls.append(name)
            if self.down:
                raise ConnectionError("the database is away")

    def measure(self) -> datetime:
        self._called("measure")
        return datetime.now(timezone.utc)

    def open_lease(self, lease: Lease) -> None:
        self._called("open_lease")
        self.leases[lease.id] = lease

    def renew_lease(self, lease_id: UUID, expires_at: datetime, *, lag: float = 0.0) -> bool:
        self._called("renew_lease")
        return lease_id in self.leases and lease_id not in self.dead

    def close_lease(self, lease_id: UUID) -> None:
        self._called("close_lease")
        self.leases.pop(lease_id, None)

    def close_connections(self) -> None:
        with self.lock:
            self.closed_by.append(threading.get_ident())

    def claims(self, **_: Any) -> list[Any]:
        self._called("claims")
        return []


class FakeTransport:
    """Takes everything, sends nothing."""

    def dispatch(self, *_: Any) -> int:
        return 0

    def advance(self, *_: Any, **__: Any) -> bool:
        return False

    def advance_all(self, *_: Any) -> int:
        return 0

    def queue_of(self, queue: str = "", step: str = "") -> str:
        return queue


def runtime_with(store: Any, **settings: Any) -> runtime.Runtime:
    """A runtime on this store; LEASE is 1 s unless it is given."""
    chosen = Settings(**{"lease": timedelta(seconds=1), **settings})
    return runtime.Runtime(
        store=store,
        transport=FakeTransport(),  # type: ignore[arg-type]
        settings=chosen,
        clock=runtime.Clock(store),
    )
