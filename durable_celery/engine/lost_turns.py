"""Turns that take their process along: counted on their instance, which is BLOCKED after so many.

Rules of this file:
- A pool's main process that sees a child die knows which turn it was in (``deaths``). Where nobody saw it, the whole
  worker went, or it has no children: then a turn that comes late is noted before its body runs, since a lost one is
  what makes turns late. Begun again long after it must have ended, it counts as lost.
- A turn in time pays nothing, a late one one statement.
- A committed turn takes all of it back: whoever gets through is not the one that kills. So no instance is blamed for
  a neighbour in its process or worker, unless it was in the middle of a turn at so many deaths in a row.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from durable_celery.core import journal, transitions
from durable_celery.core.decision import Decision
from durable_celery.core.failure import failure_of
from durable_celery.errors import UsageError
from durable_celery.ports import Loaded
from durable_celery.runtime import Runtime

LATE = timedelta(seconds=30)  # after what a turn is for
ENDED = timedelta(seconds=10)  # beyond twice TURN_TIMEOUT, after which a turn that was begun runs no more
UNSEEN = "each was begun and never committed: its process ended, or the commit failed; the log of the workers says more"


def begin(rt: Runtime, loaded: Loaded, now: datetime) -> Decision | None:
    """Note a turn that comes late; the decision to block it, if too many were lost."""
    instance = loaded.instance
    news_at = journal.news_at(loaded.journal, now) or (instance.start_at if not instance.turn else now)
    if now - news_at < LATE:
        return None
    begun_at = instance.turn_begun_at
    if begun_at is not None and now - begun_at < rt.settings.turn_timeout * 2 + ENDED:
        return None  # it may be under way somewhere
    deaths = instance.turn_deaths + (begun_at is not None)
    if deaths >= rt.settings.max_deaths:
        return blocked(deaths, UNSEEN)
    # Refused if another turn was committed meanwhile: then the commit of this one will be too.
    rt.store.note_late_turn(instance.id, instance.revision, deaths, now)
    return None


def blocked(deaths: int, reason: str) -> Decision:
    """What becomes of the turn that would be the next."""
    text = (
        f"{deaths} turns in a row took their process along, which is MAX_DEATHS: {reason}. Correct the workflow's body "
        "and deploy it, or move what ends the process into a step; retry() lets it try again"
    )
    return Decision(state=transitions.BLOCKED, failure=failure_of(UsageError(text)), waiting=text)
