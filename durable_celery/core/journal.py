"""What is stored of a run, as replay reads it: entries by position, messages in order, markers by id. Pure values.

An outcome counts from the turn that took it in (``taken_turn``, ``taken_order``). What has ended and was not taken in
yet is new: the next turn orders it by its own time, then messages before steps before timers, then id.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from operator import attrgetter
from typing import Final

from durable_celery.core import transitions as t
from durable_celery.core.summaries import Summary

STEP: Final = "step"
TIMER: Final = "timer"
SIGNAL: Final = "signal"
GATHER: Final = "gather"
CANCEL: Final = "cancel"  # kinds of messages beside signals
DEADLINE: Final = "deadline"
UPDATE: Final = "update"
REJECTED: Final = "rejected"  # what a rejected update becomes: no message any more, kept for its sender alone
CHAIN: Final = "chain"
RACE: Final = "race"
CHILD: Final = "child"
MAP: Final = "map"
SPAWN: Final = "spawn"
CONDITION: Final = "condition"
POLL: Final = "poll"
COMPENSATION: Final = "compensation"

STEPS: Final = (STEP, POLL)  # kinds that a worker runs for the body
RUNS: Final = (*STEPS, COMPENSATION)  # kinds that run in a worker
CALLS: Final = (*RUNS, CHILD)  # kinds whose arguments are those of a call
WAITS: Final = (TIMER, SIGNAL, CONDITION)  # kinds that end by a time, of themselves or as a time-out
COMPOSITES: Final = (GATHER, CHAIN, RACE, SPAWN)  # kinds made of the rows below them
WITH_OPTIONS: Final = (GATHER, CHILD, POLL, MAP)  # kinds whose recorded options replay goes by
NO_EVENTS: Final = (*COMPOSITES, COMPENSATION)  # kinds the body never sees the end of

SEED: Final = "seed"  # marker of a fork: whose dice it goes on with

MESSAGE_RANK, STEP_RANK, TIMER_RANK = 0, 1, 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One row of the journal: a command at its position and what became of it.

    ``args``, ``result`` are encoded values, ``failure`` an encoded Failure. ``members`` counts what stands directly
    below a composite. ``options`` are those of a gather or child as recorded, else empty: replay needs no other's.
    ``unknown_end``: some attempt was lost or timed out, so its effect may exist.
    """

    id: int
    position: str
    kind: str
    name: str
    state: str
    members: int = 0
    args: str = ""
    options: str = ""
    result: str | None = None
    failure: str | None = None
    attempt: int = 0
    due_at: datetime | None = None
    finished_at: datetime | None = None
    taken_turn: int | None = None
    taken_order: int = 0
    taken_at: datetime | None = None
    compensation: str = ""
    unknown_end: bool = False
    abandoned: bool = False  # nobody waits for it; its outcome is kept and shown, not delivered
    summary: Summary | None = None  # of a map whose members are not all on its own row yet


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """Something that came from outside. ``kind`` is "signal", "cancel", ...; ``payload`` an encoded value.

    ``answered``: an update that was accepted in some turn, this one or one that was taken back.
    """

    id: int
    kind: str
    name: str
    payload: str
    stored_at: datetime
    taken_turn: int | None = None
    taken_order: int = 0
    taken_at: datetime | None = None
    answered: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Journal:
    """Everything stored of one run. ``markers`` maps a marker's key to its encoded value."""

    instance_id: str
    entries: Sequence[Entry] = ()
    messages: Sequence[Message] = ()
    markers: Mapping[str, str] = field(default_factory=dict)


@dataclass(slots=True, kw_only=True)  # nobody changes one; frozen, it takes three times as long to make
class Event:
    """One outcome in the order the body sees it. Exactly one of ``entry`` and ``message`` is set."""

    turn: int
    order: int
    at: datetime  # now() of the turn that took it in
    entry: Entry | None = None
    message: Message | None = None


def events(journal: Journal, *, turn: int, now: datetime) -> list[Event]:
    """Every outcome in order: those of earlier turns as recorded, then the new ones as this turn orders them.

    ``turn`` and ``now`` are this turn's. A wait whose due time has come is new too; a composite, a wait answered before
    its time, a compensation, and what nobody waits for any more are no events.
    """
    seen: list[Entry | Message] = [entry for entry in journal.entries if entry.kind not in NO_EVENTS]
    seen += journal.messages
    old = [
        _event(x, turn=x.taken_turn, order=x.taken_order, at=x.taken_at or now)
        for x in seen
        if x.taken_turn is not None
    ]
    old.sort(key=attrgetter("turn", "order"))
    new: list[tuple[datetime, int, int, Entry | Message]] = [
        (message.stored_at, MESSAGE_RANK, message.id, message)
        for message in journal.messages
        if message.taken_turn is None
    ]
    for entry in journal.entries:
        if entry.taken_turn is None and (when := _ended_at(entry, now)) is not None:
            new.append((when, TIMER_RANK if entry.kind in WAITS else STEP_RANK, entry.id, entry))
    new.sort(key=lambda item: item[:3])
    return old + [_event(x, turn=turn, order=order, at=now) for order, (_, _, _, x) in enumerate(new)]


def sooner(events: Sequence[Event], missed: Sequence[Event], *, turn: int) -> list[Event]:
    """The same events with the ``missed`` messages of this turn before its first row that ended.

    All messages up to the last of them keep their order and go with them; what came after a cancel stays after it.
    """
    new = [event for event in events if event.turn == turn]
    last = max((new.index(event) for event in missed), default=-1)
    ends = [n for n, event in enumerate(new) if event.message is not None and event.message.kind in (CANCEL, DEADLINE)]
    head = new[: min([last + 1, *ends])]
    moved = [event for event in head if event.message is not None]
    order = [*moved, *(event for event in new if event not in moved)]
    return [event for event in events if event.turn != turn] + [replace(e, order=n) for n, e in enumerate(order)]


def has_new(journal: Journal, now: datetime) -> bool:
    """Whether a turn at this time would take anything in."""
    return any(message.taken_turn is None for message in journal.messages) or any(
        entry.taken_turn is None and _ended_at(entry, now) is not None for entry in journal.entries
    )


def news_at(journal: Journal, now: datetime) -> datetime | None:
    """Since when there is something for a turn to take in; None if there is nothing."""
    sent = (message.stored_at for message in journal.messages if message.taken_turn is None)
    ended = (_ended_at(entry, now) for entry in journal.entries if entry.taken_turn is None)
    return min((*sent, *(at for at in ended if at is not None)), default=None)


def _event(outcome: Entry | Message, *, turn: int, order: int, at: datetime) -> Event:
    if isinstance(outcome, Entry):
        return Event(turn=turn, order=order, at=at, entry=outcome)
    return Event(turn=turn, order=order, at=at, message=outcome)


def _ended_at(entry: Entry, now: datetime) -> datetime | None:
    """When a row not taken in yet became news; None if it is none."""
    if entry.abandoned or entry.kind in NO_EVENTS:
        return None
    if entry.kind in WAITS:
        due = entry.state == t.SCHEDULED and entry.due_at is not None and entry.due_at <= now
        return entry.due_at if due else None
    if entry.kind == MAP:
        drained = entry.state == t.SCHEDULED and entry.summary is not None and entry.summary.drained
        return (entry.summary.ended_at or now) if drained and entry.summary is not None else None
    return entry.finished_at if entry.state in t.STEP_FINAL else None
