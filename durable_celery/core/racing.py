"""Commands against each other: the first to settle wins, the others are given up. Pure.

Rules of this file:
- Members are opened in order, and none after the first that settles on opening; which ones that are is the same on
  replay, since what had come in by then is.
- The winner is the first member that an event settles. Of several outcomes in one turn their order decides, and that is
  recorded; the state of rows never does.
- A race can go on without a member that a cancel gave up: it stands still only when none is left.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from durable_celery.core import identity, journal, transitions
from durable_celery.core.commands import Command
from durable_celery.core.decision import Closing, Opening
from durable_celery.core.nodes import Node

if TYPE_CHECKING:
    from durable_celery.core.run import Run

N_co = TypeVar("N_co", covariant=True)
T_co = TypeVar("T_co", covariant=True)

SHOWN = 3  # members named in what a race waits for


@dataclass(frozen=True, slots=True)
class Winner(Generic[N_co, T_co]):
    """What a race gives: which member settled first, and its value. ``name`` is its keyword, or its index from 0.

    Unpacks: ``name, value = yield from race(...)``.
    """

    name: N_co
    value: T_co

    def __iter__(self) -> Iterator[Any]:
        yield self.name
        yield self.value


class RaceCommand(Command[T_co]):
    """Run members against each other. ``names`` are those of the code; without them a member is named by its index."""

    __slots__ = ("members", "names")
    what = "race"

    def __init__(self, members: Sequence[Command[Any]], names: Sequence[str] | None = None) -> None:
        super().__init__()
        for command in members:
            command.use()
        self.members = list(members)
        self.names = None if names is None else tuple(names)

    def describe(self) -> str:
        return f"race of {len(self.members)}" if hasattr(self, "members") else "race"

    def parts(self) -> Sequence[Command[Any]]:
        return self.members


class RaceNode(Node):
    """Members against each other."""

    __slots__ = ("_winner", "command", "members")

    def __init__(self, run: Run, command: RaceCommand[Any], position: str, parent: Node | None, **place: Any):
        super().__init__(run, position, parent, **place)
        self.command = command
        self.members: list[Node] = []  # those opened
        self._winner: Node | None = None

    def open(self) -> None:
        commands = self.command.members
        if self._row(journal.RACE, "", len(commands)) is None:
            self.run.openings.append(
                Opening(position=self.position, kind=journal.RACE, members=len(commands), state=transitions.SCHEDULED,
                        group=self.group)
            )  # fmt: skip
        for index, command in enumerate(commands):
            if self._winner is not None:
                break
            place = identity.member(self.position, index)
            # Each one's end matters alone, so they join nothing.
            self.members.append(self.run.node(command, place, self, join="", shielded=self.shielded))
            self.members[-1].open()
        self.member_settled()

    def count(self, node: Node) -> None:
        self._winner = self._winner or node

    def member_settled(self) -> None:
        winner = self._winner
        if winner is None or self.settled or self.gone or self.frozen:
            return
        state = transitions.SUCCEEDED if winner.error is None else transitions.FAILED
        name = self._name(winner)
        result = self.run.encode(name, "the winner's name")  # for people: who made the race end
        self.run.close_row(Closing(position=self.position, state=state, result=result, at=self.run.now))
        self.settle(None if winner.error is not None else Winner(name, winner.value), winner.error)
        losers = [node for node in self.members if node is not winner]
        self._abandon(losers)
        self.run.put_back([message for node in losers for message in node.reclaim()])

    def abandon(self) -> None:
        self._abandon(self.members)
        super().abandon()

    def children(self) -> list[Node]:
        return self.members

    def stopped_by(self, gave_up: Sequence[bool]) -> bool:
        return all(gave_up)

    def waiting(self) -> str:
        still = [node.waiting() for node in self.members if not node.settled and not node.gone]
        more = [f"and {len(still) - SHOWN} more"] if len(still) > SHOWN else []
        return f"race at {self.position}: the first of {', '.join(still[:SHOWN] + more)}"

    def _abandon(self, losers: Iterable[Node]) -> None:
        for node in losers:
            if not node.settled and not node.gone:
                node.abandon()

    def _name(self, node: Node) -> int | str:
        index = self.members.index(node)
        return index if self.command.names is None else self.command.names[index]
