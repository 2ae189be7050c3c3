"""How a run goes on as the next of its chain: in the transaction that ends it, and without waiting for its senders.

Messages that no run has taken in belong to the chain anyway, so the mailbox stays open and nobody's lock is needed.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from uuid import UUID

from django_app.models import Message, WorkflowInstance
from django_app.store.closing import Closing
from django_app.store.connected import chunks
from django_app.store.messages import GRACE
from durable_celery import faults
from durable_celery.core import identity
from durable_celery.core import transitions as t
from durable_celery.errors import KeyConflict
from durable_celery.ports import Successor, TurnCommit

CARRIED = (
    "chain_id", "key", "key_hash", "attributes", "memo", "context", "subject_type", "subject_id", "subject_hash",
    "root_id", "parent_id", "parent_position", "parent_close", "deadline_at",
)  # fmt: skip


class Succession(Closing):
    """Parts of the transaction that ends a run CONTINUED."""

    def move_key(self, commit: TurnCommit, successor: Successor) -> None:
        """A chain that goes on under another workflow's name takes its key along; first of all, as every start locks.

        ``KeyConflict`` if another open instance of that workflow has it.
        """
        name, key = successor.before, successor.key
        if key is None or name == successor.name:
            return
        chain_id = _chain(commit)
        old, new = identity.key_hash(name, key), identity.key_hash(successor.name, key)
        names = {old: name, new: successor.name}
        held = self.lock_keys(names)
        other = held[new].open_id
        if other is not None and other != chain_id:
            raise KeyConflict(
                f"instance {chain_id} of {name} cannot continue as {successor.name}: its key {key!r} is taken there by "
                f"the open instance {other}; end that one, then retry() this",
                key=key,
                instance_id=str(other),
            )
        states = {new: replace(held[new], open_id=chain_id)}
        if held[old].open_id == chain_id:
            states[old] = replace(held[old], open_id=None)  # it has not closed: ``last_*`` stay as they are
        self.write_keys(names, states)

    def insert_successor(self, commit: TurnCommit, successor: Successor) -> None:
        """The next run, with everything of the last one that outlives a run; that one is locked and has let go."""
        last = self.rows(WorkflowInstance).filter(pk=commit.instance_id).values("run_number", *CARRIED).get()
        key_hash = last["key_hash"] and identity.key_hash(successor.name, last["key"])
        carried: dict[str, Any] = {**last, "run_number": last["run_number"] + 1, "key_hash": key_hash}
        self.rows(WorkflowInstance).bulk_create([
            WorkflowInstance(
                id=successor.id, name=successor.name, version=successor.version, args=successor.args,
                open_key=key_hash, state=t.PENDING, created_at=commit.now, start_at=commit.now,
                look_at=successor.look_at, queue=successor.queue, priority=successor.priority,
                expected_at=successor.expected_at, **carried,
            )
        ])  # fmt: skip
        faults.reach("turn.successor_in_transaction")

    def leave_unread(self, commit: TurnCommit, successor: Successor) -> None:
        """What this run took in and nobody in it asked for is the chain's again, in its old order.

        By id: MySQL locks what a condition meets, and so would wait for messages of open transactions.
        """
        for pks in chunks(successor.unread):
            self.rows(Message).filter(pk__in=pks).update(
                taken_turn=None, taken_order=0, taken_at=None, look_at=commit.now + GRACE
            )


def _chain(commit: TurnCommit) -> UUID:
    return commit.chain_id or commit.instance_id
