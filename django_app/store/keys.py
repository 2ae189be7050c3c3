"""Business keys: one permanent row each, locked by every start, so that a key is never raced by catching errors."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final
from uuid import UUID

from django_app.models import WorkflowKey
from django_app.store.connected import Connected, chunks
from durable_celery.core import transitions as t
from durable_celery.errors import KeyConflict
from durable_celery.ports import NewInstance

UNSUCCESSFUL: Final = (t.FAILED, t.CANCELLED, t.TERMINATED)


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyState:
    """Who has the key: the chain that is open, and the one that closed last, each by its first run."""

    open_id: UUID | None = None
    last_id: UUID | None = None
    last_state: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyVerdict:
    """What becomes of a start with a key: insert (after terminating ``terminate``), or use what is there."""

    use: UUID | None = None
    terminate: UUID | None = None


def verdict(new: NewInstance, held: KeyState) -> KeyVerdict:
    """Judge a start by ``conflict`` (one is open) and ``reuse`` (a closed one exists); ``KeyConflict`` if refused."""
    if held.open_id is not None:
        if new.conflict == "use_existing":
            return KeyVerdict(use=held.open_id)
        if new.conflict == "terminate_existing":
            # The one just terminated is closed as far as ``reuse`` goes, and nobody asks to keep its key.
            return KeyVerdict(terminate=held.open_id)
        raise KeyConflict(
            f"key {new.key!r} of workflow {new.name} is taken by the open instance {held.open_id}; wait for its end, "
            'or start with conflict="use_existing" or "terminate_existing"',
            key=new.key,
            instance_id=str(held.open_id),
        )
    if held.last_id is None or new.reuse == "allow":
        return KeyVerdict()
    if new.reuse == "allow_if_failed" and held.last_state in UNSUCCESSFUL:
        return KeyVerdict()
    raise KeyConflict(
        f"key {new.key!r} of workflow {new.name} was used by instance {held.last_id}, which is {held.last_state}; "
        f'reuse={new.reuse!r} does not allow another, use another key or reuse="allow"',
        key=new.key,
        instance_id=str(held.last_id),
    )


class Keys(Connected):
    """The rows of keys."""

    def lock_keys(self, names: dict[str, str]) -> dict[str, KeyState]:
        """Insert and lock the rows of these keys (hash to workflow name) until the transaction ends; who has them.

        One upsert does both: INSERT IGNORE would take shared locks on MySQL, and two starts would deadlock in
        wanting them exclusively. Sorted, so that starts of many keys never wait for each other in a circle.
        """
        states: dict[str, KeyState] = {}
        for hashes in chunks(sorted(names)):
            self._upsert([WorkflowKey(hash=key, name=names[key]) for key in hashes], ["name"])
            found = self.rows(WorkflowKey).filter(hash__in=hashes)
            if self.connection.features.has_select_for_update:
                found = found.select_for_update()  # locked already; reads the newest version under any isolation
            for key, open_id, last_id, last_state in found.values_list("hash", "open_id", "last_id", "last_state"):
                states[key] = KeyState(open_id=open_id, last_id=last_id, last_state=last_state)
        return states

    def write_keys(self, names: dict[str, str], states: dict[str, KeyState]) -> None:
        """Store who has these keys now; they are locked."""
        rows = (
            WorkflowKey(hash=key, name=names[key], open_id=s.open_id, last_id=s.last_id, last_state=s.last_state)
            for key, s in sorted(states.items())
        )
        for some in chunks(rows):
            self._upsert(some, ["open_id", "last_id", "last_state"])

    def release_key(self, chain_id: UUID, state: str) -> None:
        """The chain that has a key ends; also its lock, taken before that of the instance as every start does."""
        self.rows(WorkflowKey).filter(open_id=chain_id).update(open_id=None, last_id=chain_id, last_state=state)

    def _upsert(self, rows: Iterable[WorkflowKey], fields: list[str]) -> None:
        target = ["hash"] if self.connection.features.supports_update_conflicts_with_target else None
        self.rows(WorkflowKey).bulk_create(
            list(rows), update_conflicts=True, update_fields=fields, unique_fields=target
        )


def freed(held: KeyState, terminated: UUID) -> KeyState:
    """After the open instance was terminated."""
    return replace(held, open_id=None, last_id=terminated, last_state=t.TERMINATED)
