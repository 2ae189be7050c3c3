"""Taking back what was done, newest position first, when an instance ends FAILED or CANCELLED. Pure.

Whoever was charged and not served is refunded: a step with a compensation counts when it succeeded, and when it was
claimed and its end is not known. It does not count when no attempt was made, or when it raised its own final error.
"""

from __future__ import annotations

from dataclasses import dataclass

from durable_celery.core import identity, journal, transitions
from durable_celery.core.commands import Undo
from durable_celery.core.decision import Opening
from durable_celery.core.journal import Entry, Journal


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The next move: open this row, or wait, or (``done``) nothing is left. ``taken`` are ended rows to take in."""

    opening: Opening | None = None
    waiting: str = ""
    done: bool = False
    taken: tuple[int, ...] = ()
    polls: bool = False  # waits for a row whose end wakes nobody


def plan(stored: Journal) -> Plan:
    """What to compensate next. A failing compensation stops none of the others."""
    rows = {entry.position: entry for entry in stored.entries}
    taken = tuple(
        entry.id
        for entry in stored.entries
        if entry.kind == journal.COMPENSATION and entry.state in transitions.STEP_FINAL and entry.taken_turn is None
    )
    for entry in sorted(filter(owes, stored.entries), key=lambda e: identity.sort_key(e.position), reverse=True):
        undo = rows.get(identity.compensation_of(entry.position))
        if undo is not None and undo.state in transitions.STEP_FINAL:
            continue
        if undo is not None:
            return Plan(waiting=f"compensation {undo.name} of {entry.position}", taken=taken)
        if entry.state not in transitions.STEP_FINAL:
            return Plan(
                waiting=f"the end of step {entry.name} at {entry.position}, to compensate it", taken=taken, polls=True
            )
        opening = _opening(entry)
        return Plan(opening=opening, waiting=f"compensation {opening.name} of {entry.position}", taken=taken)
    return Plan(done=True, taken=taken)


def owes(entry: Entry) -> bool:
    """Whether this row must be compensated, or may have to be once it has ended.

    An unclaimed row counts too: it may be claimed between its reading and the commit that withdraws it.
    """
    if not entry.compensation or entry.kind != journal.STEP:
        return False
    return entry.state == transitions.SUCCEEDED or entry.state not in transitions.STEP_FINAL or entry.unknown_end


def _opening(entry: Entry) -> Opening:
    undo = Undo.from_text(entry.compensation)
    result = entry.result if entry.state == transitions.SUCCEEDED and entry.result is not None else "null"
    return Opening(
        position=identity.compensation_of(entry.position),
        kind=journal.COMPENSATION,
        name=undo.name,
        state=transitions.SCHEDULED,
        args=undo.args if undo.args is not None else f"[[{result}],{{}}]",
        options=undo.terms,
        queue=undo.queue,
        shielded=True,
    )
