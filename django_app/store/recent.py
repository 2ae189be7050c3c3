"""The rows of long journals that this process has read lately, so that a turn reads only what is new.

Rules of this file:
- A row that a turn has taken in changes no more, but by what people do (retry, skip, ...). Each of these moves the
  revision and not the turn, turns move both: while revision minus turn is the same, what is kept is as it was.
- Maps are read each time: what their members came to is written on their row later.
- Nothing is kept of what was read inside a transaction: it may be rolled back.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from operator import attrgetter
from uuid import UUID

from durable_celery.core import journal
from durable_celery.ports import InstanceRow

LONG = 50  # rows from which a journal is kept
ROWS = 20_000  # kept in all, by each process
TEXT = 250_000  # characters of values; a journal with more is read each time


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """Rows that turns up to ``turn`` have taken in, by id."""

    created_at: datetime  # of the run: an id may be used again after a purge
    turn: int
    acts: int  # revision minus turn
    entries: Sequence[journal.Entry]
    text: int  # characters of their values


class Recent:
    """The journals of the instances this process has had in hand last."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: OrderedDict[UUID, Kept] = OrderedDict()
        self._rows = 0

    def of(self, run: InstanceRow) -> Kept | None:
        """What is kept of this run and still holds."""
        with self._lock:
            kept = self._kept.get(run.id)
            if kept is None or _name(run) != (kept.created_at, kept.acts) or kept.turn > run.turn:
                return None
            self._kept.move_to_end(run.id)
            return kept

    def keep(self, run: InstanceRow, before: Kept | None, read: Sequence[journal.Entry]) -> None:
        """Keep, with what was kept ``before``, those of the entries just ``read`` that turns up to this run's last one
        have taken in, with all they have."""
        taken = [
            entry for entry in read
            if entry.taken_turn is not None and entry.taken_turn <= run.turn and entry.kind != journal.MAP
        ]  # fmt: skip
        text = sum(len(entry.result or "") + len(entry.failure or "") for entry in taken)
        if before is not None:
            taken, text = [*before.entries, *taken], before.text + text
        created_at, acts = _name(run)
        with self._lock:
            self._drop(run.id)
            if LONG <= len(taken) <= ROWS and text <= TEXT:
                self._kept[run.id] = Kept(created_at=created_at, turn=run.turn, acts=acts, entries=taken, text=text)
                self._rows += len(taken)
            while self._rows > ROWS:
                self._drop(next(iter(self._kept)))

    def _drop(self, instance_id: UUID) -> None:
        kept = self._kept.pop(instance_id, None)
        if kept is not None:
            self._rows -= len(kept.entries)


def _name(run: InstanceRow) -> tuple[datetime, int]:
    return run.created_at, run.revision - run.turn


def together(kept: Kept, others: Sequence[journal.Entry]) -> Sequence[journal.Entry]:
    """All entries of a journal, by id."""
    return sorted((*kept.entries, *others), key=attrgetter("id"))
