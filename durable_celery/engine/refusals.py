"""A look at an instance that did nothing but refuse updates: it is no turn, and leaves no trace but their answers."""

from __future__ import annotations

from datetime import datetime

from durable_celery.core import transitions
from durable_celery.core.decision import Decision
from durable_celery.ports import Loaded
from durable_celery.runtime import Runtime


def alone(decision: Decision, state: str) -> bool:
    """Whether refusals are all there is of a decision about an instance that waits."""
    return bool(decision.rejected) and state == decision.state == transitions.WAITING and not (
        decision.openings or decision.closings or decision.withdrawn or decision.markers
        or decision.taken_entries or decision.taken_messages
    )  # fmt: skip


def keep(rt: Runtime, loaded: Loaded, decision: Decision, now: datetime) -> str:
    """Tell the senders; whether to look again, as of a turn."""
    instance = loaded.instance
    if not rt.store.reject_updates(instance.id, instance.revision, decision.rejected, now):
        return "lost"
    return "more" if rt.store.has_news(instance.id) else "parked"
