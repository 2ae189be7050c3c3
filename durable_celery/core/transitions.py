"""The states of an instance and of a step, and every change between them, as one table each.

Rules of this file:
- A state changes only along an edge of these tables; the store's guarded UPDATEs take their WHERE from ``sources``.
- A final state has no edge but ``retry()``'s, from FAILED, which ``skip`` and ``retry_step`` include; of a step also a
  poll's, whose result was not liked.
- PAUSED is an overlay (``paused_at``) over any open state, so it has no edges of its own.
"""

from __future__ import annotations

from typing import Final

# -- instances -----------------------------------------------------------------------------------------------------

PENDING: Final = "PENDING"  # committed, no turn taken yet
RUNNING: Final = "RUNNING"  # there is more for the body to do right now
WAITING: Final = "WAITING"  # the last turn is committed; nothing to do but wait, for steps as well
PAUSED: Final = "PAUSED"  # shown for any open state while paused_at is set
BLOCKED: Final = "BLOCKED"  # a bug or a mismatch; waits for a person or for new code
COMPENSATING: Final = "COMPENSATING"  # the body has ended; its compensations run
COMPLETED: Final = "COMPLETED"
FAILED: Final = "FAILED"
CANCELLED: Final = "CANCELLED"
TERMINATED: Final = "TERMINATED"
CONTINUED: Final = "CONTINUED"

OPEN_STATES: Final = (PENDING, RUNNING, WAITING, BLOCKED, COMPENSATING)
FINAL_STATES: Final = (COMPLETED, FAILED, CANCELLED, TERMINATED, CONTINUED)

INSTANCE: Final[dict[str, tuple[str, ...]]] = {
    PENDING: (RUNNING, WAITING, BLOCKED, COMPENSATING, COMPLETED, FAILED, CANCELLED, TERMINATED, CONTINUED),
    RUNNING: (RUNNING, WAITING, BLOCKED, COMPENSATING, COMPLETED, FAILED, CANCELLED, TERMINATED, CONTINUED),
    WAITING: (RUNNING, WAITING, BLOCKED, COMPENSATING, COMPLETED, FAILED, CANCELLED, TERMINATED, CONTINUED),
    BLOCKED: (RUNNING, WAITING, BLOCKED, COMPENSATING, COMPLETED, FAILED, CANCELLED, TERMINATED, CONTINUED),
    COMPENSATING: (COMPENSATING, BLOCKED, FAILED, CANCELLED, TERMINATED),
    COMPLETED: (),
    FAILED: (RUNNING,),
    CANCELLED: (),
    TERMINATED: (),
    CONTINUED: (),
}

# -- steps ---------------------------------------------------------------------------------------------------------
# The same table serves timers, signal waits and children: they use SCHEDULED and the final states only.

HELD: Final = "HELD"  # a member over gather's limit; nobody may claim it yet
SCHEDULED: Final = "SCHEDULED"  # anyone may claim it; of a timer or a signal wait: it waits
RETRYING: Final = "RETRYING"  # claimable again from due_at on
EXTERNAL: Final = "EXTERNAL"  # handed to the outside by CompleteLater
ABANDONED: Final = "ABANDONED"  # still running, its outcome is no longer delivered
SUCCEEDED: Final = "SUCCEEDED"

STEP: Final[dict[str, tuple[str, ...]]] = {
    HELD: (SCHEDULED, CANCELLED),
    SCHEDULED: (RUNNING, SUCCEEDED, FAILED, CANCELLED),
    RUNNING: (SUCCEEDED, FAILED, RETRYING, EXTERNAL, ABANDONED, CANCELLED),
    RETRYING: (RUNNING, FAILED, SUCCEEDED, CANCELLED),
    EXTERNAL: (SUCCEEDED, FAILED, RETRYING, ABANDONED, CANCELLED),
    ABANDONED: (SUCCEEDED, FAILED, CANCELLED),
    SUCCEEDED: (RETRYING,),  # a poll whose result is not liked; nothing else
    FAILED: (SCHEDULED,),
    CANCELLED: (SCHEDULED,),
}

CLAIMABLE: Final = (SCHEDULED, RETRYING)
CLAIMED: Final = (RUNNING, EXTERNAL, ABANDONED)
STEP_OPEN: Final = (HELD, SCHEDULED, RUNNING, RETRYING, EXTERNAL)
STEP_FINAL: Final = (SUCCEEDED, FAILED, CANCELLED)


def sources(table: dict[str, tuple[str, ...]], target: str) -> tuple[str, ...]:
    """The states from which ``target`` may be reached, in table order."""
    return tuple(state for state, targets in table.items() if target in targets)
