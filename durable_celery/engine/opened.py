"""From what a turn decided to the rows it writes. Pure."""

from __future__ import annotations

from datetime import datetime

from durable_celery.core import journal, transitions
from durable_celery.core.children import ChildTerms
from durable_celery.core.decision import Closing, Opening
from durable_celery.engine import verdicts
from durable_celery.ports import NewEntry, Settled


def settled(entry_id: int, closing: Closing) -> Settled:
    """How a row ends that was there before."""
    return Settled(
        entry_id=entry_id, state=closing.state, result=closing.result,
        failure=closing.failure.to_text() if closing.failure else None, finished_at=closing.at,
    )  # fmt: skip


def row_of(
    opening: Opening, closing: Closing | None, dropped: bool, now: datetime, *, starts: bool = False
) -> NewEntry:
    """The row of a command: waiting, or ended in the very turn that asked for it; a child ``starts`` all the same."""
    state, finished_at, result, failure = opening.state, None, opening.result, None
    if closing is not None:
        state, finished_at, result = closing.state, closing.at, closing.result
        failure = closing.failure.to_text() if closing.failure else None
    elif dropped:
        state, finished_at = transitions.CANCELLED, now
    return NewEntry(
        position=opening.position, kind=opening.kind, name=opening.name, state=state, args=opening.args,
        members=opening.members, options=opening.options,
        group=opening.group, join=opening.join, limited=opening.limited,
        due_at=opening.due_at, start_by_at=opening.start_by_at, end_by_at=opening.end_by_at,
        look_at=None if finished_at else _look_at(opening, now), compensation=opening.compensation, queue=opening.queue,
        result=result, failure=failure, finished_at=finished_at, abandoned=closing is None and dropped,
        shielded=opening.shielded, attempt=int(opening.kind == journal.CHILD and (not finished_at or starts)),
    )  # fmt: skip


def outlives_parent(opening: Opening) -> bool:
    """Whether it is a child that its parent's end leaves alone, be it asked for in the very turn of that end."""
    return opening.kind == journal.CHILD and ChildTerms.from_text(opening.options).parent_close == "abandon"


def _look_at(opening: Opening, now: datetime) -> datetime | None:
    if opening.kind in journal.WAITS:
        return opening.due_at
    if opening.kind in (*journal.COMPOSITES, journal.MAP):
        return None
    resend = now + verdicts.RESEND_GRACE if opening.state == transitions.SCHEDULED else None
    return min((x for x in (resend, opening.start_by_at, opening.end_by_at) if x is not None), default=None)
