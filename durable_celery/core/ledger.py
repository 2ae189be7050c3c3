"""What a run finds in its journal and adds to it: rows, messages, markers, and the labels of its dice. Pure."""

from __future__ import annotations

import random as dice
import uuid
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from durable_celery.core import complaints, mismatches
from durable_celery.core.decision import Again, Closing, Opening
from durable_celery.core.journal import SEED, Entry, Event, Journal, Message
from durable_celery.errors import NonDeterminism

if TYPE_CHECKING:
    from durable_celery.core import nodes


class Ledger:
    """The books of one run. What is ``replaying`` is there already, and adds nothing."""

    def __init__(self, journal: Journal, *, decode: Callable[[str], Any]) -> None:
        self.journal = journal
        self.instance_id = journal.instance_id
        self.decode_text = decode
        self.entries: dict[str, Entry] = {entry.position: entry for entry in journal.entries}
        self.markers: dict[str, str] = {}
        self.openings: list[Opening] = []
        self.closings: list[Closing] = []
        self.withdrawn: list[str] = []
        self.halted: list[str] = []
        self.told: dict[str, str] = {}  # positions of children that are asked to end, and why
        self.again: dict[str, Again] = {}  # polls whose result was not liked, by position
        self.leaves: dict[str, Any] = {}
        self.worthless: set[str] = set()  # rows whose own outcome the body will not see
        self.waits: dict[str, list[nodes.SignalNode]] = {}
        self.unread: dict[str, deque[Message]] = {}
        self.arrivals: dict[int, int] = {}  # the messages seen so far, by id: which number each was
        self.delivered: dict[int, bool] = {}  # given to somebody in this turn; False: got back from an earlier one's
        self.rows = 0  # of the journal that the body has asked for so far
        self.replaying = False
        self.ended = False
        self.undecodable = False  # a stored value is of a class this code does not have
        self._label = "start"
        self._ordinal = 0
        self._last: Event | None = None  # the outcome the body was given last

    def where(self) -> str:
        """The line the body stands at; empty before its start and after its end."""
        raise NotImplementedError  # pragma: no cover

    # -- rows ------------------------------------------------------------------------------------------------------

    def match(self, position: str, kind: str, name: str, members: int, entry: Entry | None) -> None:
        """The journal and the body must agree at ``position``; ``NonDeterminism`` otherwise."""
        self.rows += 1
        if self.replaying if entry is None else (entry.name, entry.kind, entry.members) != (name, kind, members):
            command = mismatches.Command(kind=kind, name=name, members=members)
            raise self.mismatch(
                position, complaints.words(entry), complaints.command_words(kind, name, members), command
            )

    def mismatch(
        self, position: str, recorded: str, requested: str, command: mismatches.Command | None = None
    ) -> NonDeterminism:
        """The error that blocks the instance; ``command`` is what the body asks for, if it asks for a row."""
        line = self.where() or ("after its end" if self.ended else "at its end")
        sides = mismatches.fields(self.entries.values(), position, command, self._last, line)
        return complaints.mismatch(self.instance_id, position, recorded, requested, sides)

    def withdraw(self, position: str) -> None:
        """Nobody waits for this row any more."""
        self.ignore(position)
        if not self.replaying:
            self.withdrawn.append(position)

    def tell(self, position: str, reason: str) -> None:
        """Ask the child at this position to end."""
        if not self.replaying:
            self.told[position] = reason

    def ignore(self, position: str) -> None:
        """The row's own outcome, which may be as new as what came before it, is not for the body."""
        self.leaves.pop(position, None)
        self.again.pop(position, None)
        self.worthless.add(position)

    def close_row(self, closing: Closing) -> None:
        """A timer, signal wait or gather has ended in this turn (earlier ones are in the journal as ended)."""
        if not self.replaying:
            self.closings.append(closing)

    # -- messages --------------------------------------------------------------------------------------------------

    def consumed(self, message: Message) -> None:
        """The message was given to a wait or a handler, or made the run end: it is unread no more."""
        if not self.replaying and self.delivered.pop(message.id, True):
            self.delivered[message.id] = True

    def returned(self, message: Message) -> None:
        """Who had taken the message did not need it: it is unread again. The caller puts it back into ``unread``."""
        if not self.replaying and not self.delivered.pop(message.id, False):
            self.delivered[message.id] = False

    def forget_wait(self, node: nodes.SignalNode) -> None:
        """The wait takes no message any more."""
        waits = self.waits.get(node.command.name, [])
        if node in waits:
            waits.remove(node)

    # -- values ----------------------------------------------------------------------------------------------------

    def decode(self, text: str | None) -> Any:
        """A stored value; None stands for None."""
        try:
            return None if text is None else self.decode_text(text)
        except Exception:
            self.undecodable = True
            raise

    def ordinal(self) -> str:
        """A label for the next dice, uuid or side effect: the last event and how many there were since."""
        self._ordinal += 1
        return f"{self._label}:{self._ordinal}"

    def dice(self) -> dice.Random:
        """A random.Random seeded by the run and the place in it."""
        return dice.Random(f"{self.journal.markers.get(SEED, self.instance_id)}:{self.ordinal()}")

    def uuid(self) -> uuid.UUID:
        """A uuid (version 4 in form) that is the same on replay."""
        return uuid.UUID(int=self.dice().getrandbits(128), version=4)

    def marker(self, key: str) -> str | None:
        """The recorded text of a marker."""
        return self.markers.get(key, self.journal.markers.get(key))
