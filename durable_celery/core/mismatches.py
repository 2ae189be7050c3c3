"""What the journal and the body disagree about, side by side: the fields of a ``NonDeterminism``. Pure.

``recorded_row`` and ``requested_command`` are ``{"kind", "name", "members"}`` (of a row with its ``state`` too), empty
where there is none: the body ended, or went on where the journal has nothing. ``before`` and ``after`` are the rows
recorded next to the position. ``moment`` is the outcome that the body had just been given: turn and order.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any, Final

from durable_celery.core import identity
from durable_celery.core.journal import Entry, Event

NEIGHBOURS = 3  # rows shown on each side

CAUSES: Final = """\
A step was added, removed, renamed or reordered while this instance was open, without patched(...).
The body looks at something replay does not know, as the clock, dice or a set; manage.py check names the line.
Another version of the code runs here than where the journal was written: an old worker, a rollback.
""".splitlines()

REMEDIES: Final = """\
Deploy code that fits the journal, or guard the change with patched(...): each new version of the code tries it once.
retry() tries it again at once.
skip(position, result=...) puts a result in this place; what is recorded there is set aside and stays to be seen.
fork(position) starts a new instance from everything before this position; then end this one.
cancel() compensates what was done, from the journal, without running the body.
""".splitlines()


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """What a body asks for at a position, as a row would have it."""

    kind: str
    name: str
    members: int = 0


def fields(
    entries: Iterable[Entry], position: str, requested: Command | None, last: Event | None, line: str
) -> dict[str, Any]:
    """The fields that tell the two sides apart; all are plain JSON."""
    rows = [entry for entry in entries if not identity.is_beside(entry.position)]
    here = next((entry for entry in rows if entry.position == position), None)
    before, after = _neighbours(rows, position)
    return {
        "line": line,
        "recorded_row": {} if here is None else _row(here),
        "requested_command": {} if requested is None else asdict(requested),
        "before": before,
        "after": after,
        "moment": {} if last is None else {"turn": last.turn, "order": last.order},
    }


def _neighbours(rows: list[Entry], position: str) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    if not identity.is_position(position):
        return [], []
    place = identity.sort_key(position)
    ordered = sorted(rows, key=lambda entry: identity.sort_key(entry.position))
    before = [entry for entry in ordered if identity.sort_key(entry.position) < place]
    after = [entry for entry in ordered if identity.sort_key(entry.position) > place]
    return [_row(entry) for entry in before[-NEIGHBOURS:]], [_row(entry) for entry in after[:NEIGHBOURS]]


def _row(entry: Entry) -> dict[str, Any]:
    return {
        "position": entry.position, "kind": entry.kind, "name": entry.name, "members": entry.members,
        "state": entry.state,
    }  # fmt: skip
