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
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

from django.db import connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import F, Subquery

from django_app import snapshots
from django_app.announcing import AnnouncingStore
from django_app.models import Message, WorkflowInstance
from django_app.store.attempts import WORKING, Attempts
from durable_celery.core import transitions as t
from durable_celery.ports import Claimed, Heartbeat, Loaded

log = logging.getLogger("durable_celery")


class TestedStore(AnnouncingStore):
    """``ports.TestedStore``. Holds for the thread that makes it; any other has no transaction around it."""

    __test__ = False  # to pytest

    def __init__(self, alias: str = "default", *, clock: Callable[[], datetime] | None = None) -> None:
        super().__init__(alias, clock=clock)
        self.begun: list[tuple[UUID, str, str]] = []
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

    def lose_committed(self) -> None:
        """Forget those calls: the process that would have run them is dead. What counts effects has ``outlives``."""
        for connection in connections.all(initialized_only=True):
            if connection.in_atomic_block and self._outside(connection):
                pending: Any = connection.run_on_commit
                connection.run_on_commit = []
                for _, call, _ in pending:
                    if getattr(call, "outlives", False):
                        call()

    def copy_databases(self, folder: Path) -> None:
        """Copy each database in use into files there; ``UsageError`` where no other process could go on with those."""
        snapshots.copy_into(folder, self.alias)

    def use_copies(self, folder: Path) -> None:
        """In a forked process: work on such copies, and leave the connections of the parent alone."""
        snapshots.use(folder, self.alias)

    @contextmanager
    def undone(self) -> Iterator[None]:
        """A transaction on each alias in use, rolled back at the end; it counts as the one around a test."""
        used = {one.alias for one in connections.all(initialized_only=True) if one.connection is not None}
        with ExitStack() as stack:
            for alias in sorted({*used, self.alias}):
                block: Any = transaction.atomic(using=alias)
                block._from_testcase = True  # atomic(durable=True) inside is no nested one, as in a TestCase
                stack.enter_context(block)
                stack.callback(transaction.set_rollback, True, using=alias)
            yield

    def tree(self, chain_id: UUID) -> dict[UUID, str]:
        """The runs of a chain, its children's and so on, with a name for each: that of its workflow and its place."""
        root = self.rows(WorkflowInstance).filter(chain_id=chain_id).values_list("root_id", flat=True).first()
        found = {row.pk: row for row in self.rows(WorkflowInstance).filter(root_id=root)}

        def place(row: Any) -> str:
            above = f"{place(found[row.parent_id])}/{row.parent_position}" if row.parent_id in found else ""
            return above if row.run_number == 1 else f"{above}#{row.run_number}"

        named = {pk: (f"{row.name} {place(row)}").rstrip() for pk, row in found.items()}
        return dict(sorted(named.items(), key=lambda each: each[1]))

    def all_ended(self, chain_id: UUID) -> bool:
        """Whether all of these have ended."""
        chain = self.rows(WorkflowInstance).filter(chain_id=chain_id).values("root_id")[:1]
        open_ones = self.rows(WorkflowInstance).filter(root_id=Subquery(chain), state__in=t.OPEN_STATES)
        return not open_ones.exists()

    def next_message(self) -> datetime | None:
        """When the tick looks at the oldest fresh message that no turn took in."""
        working = self.rows(WorkflowInstance).filter(state__in=WORKING, paused_at__isnull=True).values("chain_id")
        untaken = self.rows(Message).filter(taken_turn__isnull=True, chain_id__in=working)
        fresh = untaken.filter(look_at__lt=F("stored_at") + timedelta(minutes=5)).order_by("look_at")
        first: datetime | None = fresh.values_list("look_at", flat=True).first()
        return first

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
            self.begun.append((claimed.step.instance_id, claimed.step.position, claimed.step.name))
        return claimed

    def load(self, instance_id: UUID, **options: bool) -> Loaded | None:
        """Read a run for a turn. What the step before it has committed, it has committed by now."""
        self.run_committed()
        return super().load(instance_id, **options)

    def heartbeat(
        self,
        step_id: int,
        token: str,
        details: str | None,
        now: datetime,
        look_at: datetime | None,
        *,
        apart: bool = False,
    ) -> Heartbeat:
        """Note a sign of life. Over the test's own connection: another would not see what the test has written."""
        return Attempts.heartbeat(self, step_id, token, details, now, look_at)

    def asked(self, step_id: int, token: str, *, apart: bool = False) -> Heartbeat:
        """What a heartbeat would learn; over the same connection."""
        return Attempts.asked(self, step_id, token)

    def _outside(self, connection: BaseDatabaseWrapper) -> bool:
        return len(connection.atomic_blocks) <= self._around.get(connection, 0)


def _run(call: Callable[[], Any], *, robust: bool) -> None:
    try:
        call()
    except Exception:
        if not robust:
            raise
        log.exception("an on_commit call raised")
