"""When a run that was asked to end ends without its body, and when the sweep must look whether its cleanup is over.
Pure."""

from __future__ import annotations

from datetime import datetime, timedelta

from durable_celery import codec
from durable_celery.core import cancelling, transitions
from durable_celery.core.decision import Decision
from durable_celery.core.journal import CANCEL, DEADLINE
from durable_celery.ports import Loaded


def without_body(loaded: Loaded, now: datetime, cleanup: timedelta) -> Decision | None:
    """The end of a run that never started, that is BLOCKED, or whose cleanup took longer than ``cleanup``.

    Else None.
    """
    request = cancelling.request(loaded.journal)
    if request is None:
        return None
    instance = loaded.instance
    never_started = instance.turn == 0 and instance.state == transitions.PENDING
    blocked = instance.state == transitions.BLOCKED and any(
        message.taken_turn is None and message.kind in (CANCEL, DEADLINE) for message in loaded.journal.messages
    )
    over = request.taken_at is not None and now >= request.taken_at + cleanup
    if not (never_started or blocked or over):
        return None
    return cancelling.without_body(loaded.journal, codec.decode)


def look_at(loaded: Loaded, now: datetime, cleanup: timedelta) -> datetime | None:
    """When the sweep must look at an open run again: at its deadline, once asked to end when its time for cleanup is
    over."""
    request = cancelling.request(loaded.journal)
    return loaded.instance.deadline_at if request is None else (request.taken_at or now) + cleanup
