"""A result put where the body does not fit the journal: which row takes which place in the order of outcomes. Pure.

Rules of this file:
- What is recorded at the position was taken in at some moment, or ended without one of its own, or waits still. The row
  in its place gets that moment; or the one right behind the outcome the body had just been given; or it is news.
- It must not be news where later rows are recorded: the body gets there while it is replayed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from durable_celery.core import identity, journal
from durable_celery.core import transitions as t
from durable_celery.core.journal import Entry, Journal, Message
from durable_celery.errors import NotRetryable

LEAVES = (journal.STEP, journal.TIMER, journal.SIGNAL, journal.CHILD)  # kinds that one result ends


@dataclass(frozen=True, slots=True, kw_only=True)
class Replacement:
    """The row to put at ``position``. ``aside``: where what is recorded there goes (empty: nothing is).

    ``taken_turn`` None: its outcome is news. ``makes_room``: later outcomes of that turn move up by one.
    """

    position: str
    kind: str
    name: str
    aside: str
    taken_turn: int | None
    taken_order: int = 0
    taken_at: datetime | None = None
    makes_room: bool = False


def replacement(position: str, sides: Mapping[str, Any], stored: Journal) -> Replacement:
    """What ``skip`` does to a run that is blocked by the mismatch ``sides``; ``NotRetryable`` says why it cannot."""
    requested = sides.get("requested_command") or {}
    if requested.get("kind") not in LEAVES:
        raise NotRetryable(_no_leaf(stored.instance_id, position, sides), instance_id=stored.instance_id)
    entries = [entry for entry in stored.entries if not identity.is_beside(entry.position)]
    old = next((entry for entry in entries if entry.position == position), None)
    below = [e for e in entries if e.position == position or e.position.startswith(f"{position}.")]
    child = next((e for e in below if e.kind == journal.CHILD and e.state not in t.STEP_FINAL), None)
    if child is not None:
        raise NotRetryable(
            f"at position {child.position} of instance {stored.instance_id} the child {child.name} is still open; end "
            "it first: cancel() or terminate() it",
            instance_id=stored.instance_id,
        )
    place: dict[str, Any] = {"position": position, "kind": requested["kind"], "name": requested["name"]}
    place["aside"] = _aside(position, stored.entries) if old is not None else ""
    if old is not None and old.taken_turn is not None:
        return Replacement(
            **place, taken_turn=old.taken_turn, taken_order=old.taken_order, taken_at=old.taken_at
        )  # fmt: skip
    if old.state not in t.STEP_FINAL if old is not None else not _goes_on(position, entries):
        return Replacement(**place, taken_turn=None)
    moment = sides.get("moment") or {"turn": 1, "order": -1}
    return Replacement(
        **place, taken_turn=moment["turn"], taken_order=moment["order"] + 1, taken_at=_time_of(moment["turn"], stored),
        makes_room=True,
    )  # fmt: skip


def _no_leaf(instance_id: str, position: str, sides: Mapping[str, Any]) -> str:
    kind = (sides.get("requested_command") or {}).get("kind")
    asked = sides.get("requested", "nothing")
    if kind is None:
        return (
            f"instance {instance_id} is blocked because its body asks for {asked} at position {position}: there is no "
            f"row that a result could stand in. Deploy code that fits, or fork({position!r})"
        )
    return (
        f"at position {position} of instance {instance_id} the body asks for {asked}, and one result cannot stand for "
        f"that. Deploy code that fits, or fork({position!r})"
    )


def _aside(position: str, entries: Sequence[Entry]) -> str:
    taken = {entry.position for entry in entries}
    number = 1
    while identity.aside(position, number) in taken:
        number += 1
    return identity.aside(position, number)


def _goes_on(position: str, entries: Sequence[Entry]) -> bool:
    ordinal = identity.ordinal_of(position)
    return any(identity.ordinal_of(entry.position) > ordinal for entry in entries)


def _time_of(turn: int, stored: Journal) -> datetime | None:
    taken: list[Entry | Message] = [*stored.entries, *stored.messages]
    return next((x.taken_at for x in taken if x.taken_turn == turn and x.taken_at is not None), None)
