"""Chains of continued runs: which run is the newest, and how to change it while the chain may move on."""

from __future__ import annotations

from typing import Any, NamedTuple
from uuid import UUID

from django.db.models import Q, QuerySet

from django_app.models import WorkflowInstance
from django_app.store.connected import Connected
from durable_celery.errors import InstanceNotFound


class Newest(NamedTuple):
    """The newest run of a chain, as it was read."""

    id: UUID
    chain_id: UUID
    state: str
    closing_as: str

    @property
    def end(self) -> str:
        """The final state, or the one a COMPENSATING run is bound for."""
        return self.closing_as or self.state


class Chains(Connected):
    """Every statement here goes by an index to the last run, however many there were before it."""

    def newest_run(self, instance_id: UUID, *, locked: bool = False) -> Newest:
        """The newest run of the chain with this id, or of the chain of the run with it; ``InstanceNotFound``.

        ``locked``: as it is now, even in a transaction that shows an older state.
        """
        found = self._newest_of(instance_id, locked)
        if found is None:
            chains = self.rows(WorkflowInstance).filter(pk=instance_id).values_list("chain_id", flat=True)
            chain_id = chains.first()
            found = self._newest_of(chain_id, locked) if chain_id is not None else None
        if found is None:
            raise InstanceNotFound.of(instance_id)
        return found

    def change_newest(self, run: Newest, guard: Q, **values: Any) -> tuple[Newest, bool]:
        """Change the newest run of a chain if ``guard`` holds; that run, and whether it was changed. In a transaction.

        ``run``: as ``newest_run`` gave it, before the transaction, which so begins with a write. A chain that has gone
        on since is followed: no act is lost to a run that has just ended.
        """
        seen: Newest | None = None
        while True:
            if self.rows(WorkflowInstance).filter(guard, pk=run.id).update(**values):
                return run, True
            if seen is not None and seen.id == run.id:
                return run, False
            seen, run = run, self.newest_run(run.chain_id, locked=True)

    def _newest_of(self, chain_id: UUID, locked: bool) -> Newest | None:
        runs: QuerySet[Any] = self.rows(WorkflowInstance).filter(chain_id=chain_id).order_by("-run_number")
        if locked and self.vendor == "mysql":
            runs = runs.select_for_update()  # under REPEATABLE READ a plain read may show an older run as the last
        found = runs.values_list(*Newest._fields).first()
        return Newest(*found) if found is not None else None
