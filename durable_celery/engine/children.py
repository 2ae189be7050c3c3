"""A turn and the other instances it touches: the children it starts and asks to end, the parent it ends for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from durable_celery import codec, faults
from durable_celery.core import identity, journal
from durable_celery.core.children import ChildTerms
from durable_celery.core.decision import Decision
from durable_celery.engine import verdicts
from durable_celery.ports import InstanceRow, Loaded, NewEntry, NewInstance, NewMessage, Wake
from durable_celery.runtime import Runtime

SOON = 5.0  # seconds; a start later than that is woken by its row's due time, not by a message


def kin(loaded: Loaded) -> dict[str, Any]:
    """What a commit that may end the instance says of its relatives."""
    instance = loaded.instance
    return {
        "parent": None if instance.parent_id is None else (instance.parent_id, instance.parent_position),
        "has_children": any(entry.kind == journal.CHILD for entry in loaded.journal.entries),
    }


def of_turn(instance: InstanceRow, decision: Decision, entries: Iterable[NewEntry], now: datetime) -> dict[str, Any]:
    """The children a turn starts, in the order of its rows, and those it asks to end."""
    return {
        "children": [
            new_child(instance.id, instance.context, entry.position, entry.name, entry.args, entry.options, now)
            for entry in entries
            if entry.kind == journal.CHILD and entry.attempt
        ],
        "told": {position: codec.encode(reason, root="reason") for position, reason in decision.told.items()},
    }


def new_child(
    parent_id: UUID, context: Mapping[str, Any], position: str, name: str, args: str, options: str, now: datetime
) -> NewInstance:
    """The instance that a child's row asks for. Its context is its parent's. Pure."""
    terms = ChildTerms.from_text(options)
    start_at = now + timedelta(seconds=terms.start_delay)
    return NewInstance(
        id=identity.child_id(parent_id, position),
        name=name,
        version=terms.version,
        args=args,
        key=terms.key,
        conflict=terms.conflict,
        reuse=terms.reuse,
        created_at=now,
        start_at=start_at,
        look_at=start_at if terms.start_delay else start_at + verdicts.RESEND_GRACE,
        queue=terms.queue,
        priority=terms.priority,
        deadline_at=_after(start_at, terms.execution_timeout),
        expected_at=_after(start_at, terms.expected),
        attributes=terms.attributes,
        memo=terms.memo,
        context=context,
        subject=terms.subject,
        parent_id=parent_id,
        parent_position=position,
        parent_close=terms.parent_close,
        messages=[NewMessage(kind="signal", name=terms.signal[0], payload=terms.signal[1])] if terms.signal else (),
    )


def wake(rt: Runtime, wakes: Iterable[Wake]) -> None:
    """Hint, after the commit, at the instances that something happened to. Where the broker is away the tick does it.

    A parent that waits for many is hinted at once: by the end of the last one.
    """
    due = []
    for each in wakes:
        if each.delay > SOON or (each.join is not None and not rt.store.has_news(each.instance_id, each.join)):
            continue
        faults.reach("children.before_wake")
        due.append(each)
    rt.transport.advance_all(due)


def _after(at: datetime, seconds: float | None) -> datetime | None:
    return None if seconds is None else at + timedelta(seconds=seconds)
