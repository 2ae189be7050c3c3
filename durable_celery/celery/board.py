"""Memory that a worker's main process shares with its pool children: the lease, the backlog, what each child is at.

Rules of this file:
- The board is made before the pool forks, so that every child inherits it; nothing here needs the database or a lock.
- The main process writes the lease, a child writes the slot of its own index; readers take what they find. Every field
  is 8 bytes at a multiple of 8, and the lease is written beside the old one before one byte makes it current.
"""

from __future__ import annotations

import mmap
import struct
from dataclasses import dataclass
from uuid import UUID

SLOTS = 2048  # pool children by index; one with a higher index has no slot and is watched by its exit alone
_LEASES = 8  # offset of the two places for a lease id
_BACKLOG = struct.Struct("<dd")  # how long the last message had waited, time.monotonic() when it was taken up
_BACKLOG_AT = 40
_FIRST = 64  # offset of the first slot
_SLOT = struct.Struct("<qqd16s")  # pid, in a message, hard deadline (time.monotonic(), a host's own), instance
_NOBODY = bytes(16)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What a slot said: whose it is, whether it is in one of our messages, when it must be killed (0: never).

    ``instance``: the deadline is that of a turn of this one.
    """

    pid: int
    busy: bool
    deadline: float
    instance: UUID | None = None


class Board:
    """Lives in the main process and, by fork, in every child."""

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, _FIRST + SLOTS * _SLOT.size)

    @property
    def lease_id(self) -> UUID | None:
        """The lease that claims are made under now; None until the database took the first."""
        place = _LEASES + 16 * self._memory[0]
        held = self._memory[place : place + 16]
        return None if held == _NOBODY else UUID(bytes=held)

    @lease_id.setter
    def lease_id(self, lease_id: UUID | None) -> None:
        other = 1 - self._memory[0]
        place = _LEASES + 16 * other
        self._memory[place : place + 16] = lease_id.bytes if lease_id else _NOBODY
        self._memory[0] = other

    def note_wait(self, seconds: float, at: float) -> None:
        """A message of ours was taken up ``at`` this ``time.monotonic()``, after so long in the broker."""
        _BACKLOG.pack_into(self._memory, _BACKLOG_AT, max(0.0, seconds), at)

    @property
    def last_wait(self) -> tuple[float, float]:
        """How long the last message had waited, and when that was; zeros before the first."""
        seconds, at = _BACKLOG.unpack_from(self._memory, _BACKLOG_AT)
        return seconds, at

    def slot(self, index: int, pid: int) -> Slot | None:
        """The slot of the child with this index, for that child to write; None past the last."""
        return Slot(self._memory, _FIRST + index * _SLOT.size, pid) if 0 <= index < SLOTS else None

    def read(self, index: int) -> Reading | None:
        """What the child with this index last wrote."""
        if not 0 <= index < SLOTS:
            return None
        pid, busy, deadline, instance = _SLOT.unpack_from(self._memory, _FIRST + index * _SLOT.size)
        turn_of = None if instance == _NOBODY else UUID(bytes=instance)
        return Reading(pid=pid, busy=bool(busy), deadline=deadline, instance=turn_of)


class Slot:
    """One child's place on the board."""

    def __init__(self, memory: mmap.mmap, place: int, pid: int) -> None:
        self._memory = memory
        self._place = place
        self._pid = pid

    def begin(self) -> None:
        """This child takes up a message of ours."""
        _SLOT.pack_into(self._memory, self._place, self._pid, 1, 0.0, _NOBODY)

    def end(self) -> None:
        """The message is done with, and with it every claim it made."""
        _SLOT.pack_into(self._memory, self._place, self._pid, 0, 0.0, _NOBODY)

    def deadline(self, at: float, instance: UUID | None = None) -> None:
        """Be killed at this ``time.monotonic()``, over a turn of ``instance``, unless it is taken back by 0."""
        struct.pack_into("<d16s", self._memory, self._place + 16, at, instance.bytes if instance else _NOBODY)
