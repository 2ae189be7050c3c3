"""The store of the testing kit, for tests that stand in a transaction which is never committed.

Rules of this file:
- What is open when the store is made belongs to the test (``TestCase``, pytest-django's ``db``). Code under test that
  is in no deeper one counts as outside any transaction: there ``on_commit`` runs at once, as in production.
- What waits for a deeper one waits for its end. Django keeps such calls until the outermost transaction commits, which
  a test's never does; ``run_committed`` runs them.
"""

from __future__ import annotations

import logging
import weakref
from collections.abc import Callable
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper

from django_app.announcing import AnnouncingStore
from django_app.models import WorkflowInstance
from django_app.store.attempts import Attempts
from durable_celery.ports import Claimed, Heartbeat, Loaded

log = logging.getLogger("durable_celery")


class TestedStore(AnnouncingStore):
    """``ports.TestedStore``. Holds for the thread that makes it; any other has no transaction around it."""

    __test__ = False  # to pytest

    def __init__(self, alias: str = "default", *, clock: Callable[[], datetime] | None = None) -> None:
        super().__init__(alias, clock=clock)
        self.claimed: list[tuple[UUID, str, str]] = []
        self._around = weakref.WeakKeyDictionary({one: len(one.atomic_blocks) for one in connections.all()})

    def in_transaction(self) -> bool:
        """Whether the code under test holds an open transaction on the engine's alias."""
        return not self._outside(self.connection)

    def on_commit(self, call: Callable[[], Any]) -> None:
        """Run ``call`` after the tested code's transaction commits, at once if there is none."""
        if self.connection.in_atomic_block and self._outside(self.connection):
            _run(call, robust=True)
        else:
            super().on_commit(call)

    def run_committed(self) -> None:
        """Run the ``on_commit`` calls, on every alias, that wait only for the transaction around the test."""
        for connection in connections.all(initialized_only=True):
            while connection.in_atomic_block and connection.run_on_commit and self._outside(connection):
                pending: Any = connection.run_on_commit  # a rollback makes a new list
                _, call, robust = pending.pop(0)
                _run(call, robust=robust)

    def runs_of(self, chain_id: UUID) -> list[UUID]:
        """The runs of a chain, in order."""
        runs = self.rows(WorkflowInstance).filter(chain_id=chain_id).order_by("created_at", "id")
        return list(runs.values_list("pk", flat=True))

    def close_connections(self) -> None:
        """Close this thread's connection, unless the test has a transaction on it."""
        if not self.connection.in_atomic_block:
            super().close_connections()

    def claim(self, step_id: int, **terms: Any) -> Claimed | None:
        """Take a step, and note it."""
        claimed = super().claim(step_id, **terms)
        if claimed is not None:
            self.claimed.append((claimed.step.instance_id, claimed.step.position, claimed.step.name))
        return claimed

    def load(self, instance_id: UUID, **options: bool) -> Loaded | None:
        """Read a run for a turn. What the step before it has committed, it has committed by now."""
        self.run_committed()
        return super().load(instance_id, **options)

    def heartbeat(
        self, step_id: int, token: str, details: str | None, now: datetime, look_at: datetime | None
    ) -> Heartbeat:
        """Note a sign of life. Over the test's own connection: another would not see what the test has written."""
        return Attempts.heartbeat(self, step_id, token, details, now, look_at)

    def _outside(self, connection: BaseDatabaseWrapper) -> bool:
        return len(connection.atomic_blocks) <= self._around.get(connection, 0)


def _run(call: Callable[[], Any], *, robust: bool) -> None:
    try:
        call()
    except Exception:
        if not robust:
            raise
        log.exception("an on_commit call raised")
