"""The next run of a chain: what it is to be, who takes its first turn, and what if it cannot be."""

from __future__ import annotations

import os
from datetime import datetime, timedelta
from uuid import UUID

from durable_celery import faults
from durable_celery.core import identity, transitions
from durable_celery.core.decision import Continuation
from durable_celery.core.failure import failure_of, printable
from durable_celery.engine import verdicts
from durable_celery.errors import KeyConflict
from durable_celery.ports import InstanceRow, Successor, TurnCommit
from durable_celery.registry import registry
from durable_celery.runtime import Runtime


def successor(continuation: Continuation, last: InstanceRow, now: datetime) -> Successor:
    """The run that ``last`` continues as.

    Under the same workflow it keeps queue and priority; another workflow's own come first. ``expected`` counts anew.
    """
    options = registry.workflow(continuation.name, continuation.version).options
    queue, priority = last.queue, last.priority
    if continuation.name != last.name:
        queue = options.queue or queue
        priority = options.priority if options.priority is not None else priority
    return Successor(
        id=next_id(last, now),
        name=continuation.name,
        version=continuation.version,
        args=continuation.args,
        key=last.key,
        before=last.name,
        queue=queue,
        priority=priority,
        expected_at=None if options.expected is None else now + timedelta(seconds=options.expected),
        look_at=now + verdicts.RESEND_GRACE,
        unread=continuation.unread,
    )


def next_id(last: InstanceRow, now: datetime) -> UUID:
    """A new id; the testing kit makes one that is the same in each repetition."""
    return identity.new_id(int(now.timestamp() * 1000), os.urandom(10))


def follow(rt: Runtime, run: Successor, last: InstanceRow) -> str:
    """After the commit: go on with the new run right here, or ask whoever its queue belongs to."""
    faults.reach("continue.after_commit")
    if run.queue == last.queue:
        return "more"
    rt.transport.advance(run.id, run.queue)
    return "parked"


def refused(commit: TurnCommit, error: KeyConflict, deadline_at: datetime | None) -> TurnCommit:
    """The turn as a block: the key of the chain is taken where it wants to go. ``retry()`` tries again."""
    failure = failure_of(error)
    return TurnCommit(
        instance_id=commit.instance_id, chain_id=commit.chain_id, revision=commit.revision, turn=commit.turn - 1,
        now=commit.now, state=transitions.BLOCKED, fingerprint=commit.fingerprint, failure=failure.to_text(),
        waiting_for=printable(f"blocked: {failure.brief}, since {commit.now:%Y-%m-%d %H:%M:%S} UTC"),
        look_at=deadline_at,
    )  # fmt: skip
