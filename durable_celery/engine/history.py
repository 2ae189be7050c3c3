"""How long the journal of a run may grow: ``HISTORY_WARN`` says so, ``HISTORY_LIMIT`` stops it. Pure.

Each turn reads the whole journal. A run that goes on for ever continues as new; members of ``map_step`` are read apart
and do not count.
"""

from __future__ import annotations

from durable_celery.conf import Settings
from durable_celery.core import transitions
from durable_celery.core.decision import Decision
from durable_celery.core.failure import failure_of
from durable_celery.core.journal import Journal
from durable_celery.errors import UsageError

ADVICE = (
    "end this run and go on in a new one with an empty journal: return (yield from continue_as_new(...)), passing on "
    "what it needs; poll() takes one row however long, map_step() keeps its members out of the journal"
)


def length_after(journal: Journal, decision: Decision) -> int:
    """Rows of the journal once the decision is committed."""
    return len(journal.entries) + len(decision.openings)


def limited(decision: Decision, journal: Journal, workflow: str, settings: Settings) -> Decision:
    """The decision, or a block in its place if the journal would grow beyond the limit. A run that ends may end."""
    length = length_after(journal, decision)
    if decision.state != transitions.WAITING or not decision.openings or length <= settings.history_limit:
        return decision
    error = UsageError(
        f"the history of this run of {workflow} would grow to {length} rows; HISTORY_LIMIT is "
        f"{settings.history_limit}. Nothing was changed. To go on from here raise DURABLE_CELERY['HISTORY_LIMIT'] and "
        f"retry() it; for new runs, {ADVICE}"
    )
    failure = failure_of(error)
    return Decision(state=transitions.BLOCKED, failure=failure, waiting=f"UsageError: {error}")


def warning(before: int, after: int, workflow: str, settings: Settings) -> str:
    """What the log says in the one turn that passes ``HISTORY_WARN``; empty in all others."""
    if not before < settings.history_warn <= after:
        return ""
    return (
        f"the history of this run of {workflow} has {after} rows; HISTORY_WARN is {settings.history_warn}, at "
        f"HISTORY_LIMIT ({settings.history_limit}) it is BLOCKED. Each turn reads all of them: {ADVICE}"
    )
