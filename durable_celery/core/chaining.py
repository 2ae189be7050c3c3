"""Commands one after the other, and side by side with a list as value: what a Celery canvas is made of.

Rules of this file:
- A member of a chain is built when the one before has ended, by a pure function of its value. So it is encoded late,
  and what it gets is the recorded value, live as well as on replay.
- How many members a chain has is fixed when it is yielded, and checked on replay as that of a gather.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from durable_celery.core import identity, journal, transitions
from durable_celery.core.commands import Command, GatherCommand, GatherRules
from durable_celery.core.decision import Closing, Opening
from durable_celery.core.gathering import GatherNode
from durable_celery.core.nodes import Node

if TYPE_CHECKING:
    from durable_celery.core.run import Run

T_co = TypeVar("T_co", covariant=True)
Link = Callable[[Any], Command[Any]]  # from the value before (None for the first) to the next command


class ChainCommand(Command[T_co]):
    """Run members one after the other; the value is that of the last, None if there are none.

    A member's error ends the chain. So does a step that succeeded with an error noted (it was ignored): then the value
    is None.
    """

    __slots__ = ("links",)
    what = "chain"

    def __init__(self, links: Sequence[Link]) -> None:
        super().__init__()
        self.links = list(links)

    def describe(self) -> str:
        return f"chain of {len(self.links)}" if hasattr(self, "links") else "chain"


class GroupCommand(GatherCommand[T_co]):
    """Run members side by side; the value is a list. The values of the members in ``flat``, lists, are spliced in."""

    __slots__ = ("flat",)
    what = "group"

    def __init__(self, members: Sequence[Command[Any]], flat: Sequence[int] = ()) -> None:
        super().__init__(members, GatherRules())
        self.flat = frozenset(flat)

    def describe(self) -> str:
        return f"group of {len(self.members)}" if hasattr(self, "members") else "group"


class ChainNode(Node):
    """Members one after the other."""

    __slots__ = ("_at", "_next", "command")

    def __init__(self, run: Run, command: ChainCommand[Any], position: str, parent: Any, **place: Any):
        super().__init__(run, position, parent, **place)
        self.command = command
        self._at: Node | None = None  # the member that is open
        self._next = 0

    def open(self) -> None:
        members = len(self.command.links)
        if self._row(journal.CHAIN, "", members) is None:
            self.run.openings.append(
                Opening(position=self.position, kind=journal.CHAIN, members=members, state=transitions.SCHEDULED,
                        group=self.group)
            )  # fmt: skip
        self.member_settled()

    def member_settled(self) -> None:
        """Go on as far as possible."""
        while not self.settled and not self.frozen and not self.gone:
            at = self._at
            if at is not None and not at.settled:
                return
            if at is not None and at.error is not None:
                self._finish(error=at.error)
            elif at is not None and self._was_ignored(at):
                self._finish()
            elif self._next == len(self.command.links):
                self._finish(at.value if at is not None else None)
            else:
                self._open_next(at.value if at is not None else None)

    def abandon(self) -> None:
        if self._at is not None and not self._at.settled and not self._at.gone:
            self._at.abandon()
        super().abandon()

    def children(self) -> list[Node]:
        return [self._at] if self._at is not None else []

    def unopened(self) -> bool:
        return self._next < len(self.command.links)

    def waiting(self) -> str:
        done = f"chain at {self.position}, {self._next} of {len(self.command.links)}"
        return f"{done}, {self._at.waiting()}" if self._at is not None else done

    def _open_next(self, value: Any) -> None:
        command = self.command.links[self._next](value)
        command.use()
        place = identity.member(self.position, self._next)
        self._next += 1
        # Each one's end matters alone, so they join nothing.
        self._at = self.run.node(command, place, self, join="", shielded=self.shielded)
        self._at.open()

    def _was_ignored(self, node: Node) -> bool:
        entry = self.run.entries.get(node.position)
        return entry is not None and entry.state == transitions.SUCCEEDED and entry.failure is not None

    def _finish(self, value: Any = None, error: BaseException | None = None) -> None:
        state = transitions.SUCCEEDED if error is None else transitions.FAILED
        self.run.close_row(Closing(position=self.position, state=state, at=self.run.now))
        self.settle(value, error)


class GroupNode(GatherNode):
    """Members side by side, the value a list."""

    __slots__ = ()

    def _shape(self, values: list[Any], kind: Callable[[list[Any]], Any]) -> Any:
        if kind is not tuple:  # the errors and results an error carries: by position
            return kind(values)
        assert isinstance(self.command, GroupCommand)
        shaped: list[Any] = []
        for index, value in enumerate(values):
            shaped += value if index in self.command.flat and isinstance(value, list) else [value]
        return shaped
