"""Commands side by side: when the members of a gather start, when it ends, and with what.

Rules of this file:
- Steps under a limit are rows from the start, HELD ones let go by the store as others end. Where another kind is among
  the members, the gather opens them one by one instead.
- Whether a member never starts is decided by the turn that sees the failure, and recorded: the state its row is in
  later, or was in while that turn was committed, does not change what the body sees.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from durable_celery.core import identity, journal, transitions
from durable_celery.core.commands import GatherCommand, GatherRules, StepCommand
from durable_celery.core.decision import Closing, Opening
from durable_celery.core.nodes import Node
from durable_celery.errors import WorkflowError

if TYPE_CHECKING:
    from durable_celery.core.run import Run


class GatherNode(Node):
    """Members side by side."""

    __slots__ = ("_failed", "_gone", "_good", "_limit", "_next", "_stopped", "command", "members", "rules")

    def __init__(self, run: Run, command: GatherCommand[Any], position: str, parent: Node | None, **place: Any):
        super().__init__(run, position, parent, **place)
        self.command = command
        self.rules: GatherRules = command.rules
        self.members: list[Node] = []
        self._limit: int | None = None  # of members open at once, where they are opened one by one
        self._next = 0  # members opened so far
        self._good = 0
        self._failed = 0
        self._gone = 0  # opened, and given up while others run
        self._stopped = False

    def open(self) -> None:
        commands = self.command.members
        entry = self._row(journal.GATHER, "", len(commands))
        if entry is None:
            self.run.openings.append(
                Opening(position=self.position, kind=journal.GATHER, members=len(commands), state=transitions.SCHEDULED,
                        group=self.group, options=self.rules.to_text())
            )  # fmt: skip
        elif entry.options:
            self.rules = self.rules.as_recorded(entry.options)
        limited = self.rules.limit is not None
        one_by_one = limited and not all(isinstance(command, StepCommand) for command in commands)
        self._limit = self.rules.limit if one_by_one else None
        join = self._join(one_by_one)
        for index, command in enumerate(commands):
            held = limited and not one_by_one and index >= (self.rules.limit or 0)
            place = identity.member(self.position, index)
            self.members.append(
                self.run.node(
                    command,
                    place,
                    self,
                    held=held,
                    limited=limited and not one_by_one,
                    join=join,
                    shielded=self.shielded,
                )
            )
        while not one_by_one and self._next < len(self.members):
            self._open_next()
        self.member_settled()

    def count(self, node: Node) -> None:
        """A member has just ended."""
        if node.error is None:
            self._good += 1
        else:
            self._failed += 1

    def member_settled(self) -> None:
        """One more member has ended; maybe that ends the gather, or lets the next member start."""
        rules, needed = self.rules, self.rules.needed
        while not self.settled and not self.frozen and not self.gone:
            if needed is not None and self._good >= needed:
                self._finish(None)
            elif needed is not None and len(self.members) - self._failed < needed:
                self._finish(self._first_error())
            elif needed is None and not rules.return_exceptions and self._failed > rules.tolerate:
                self._stop()
                if self._running:
                    return
                self._finish(self._first_error())
            elif self._next < len(self.members) and (self._limit is None or self._running < self._limit):
                self._open_next()
            elif self._running:
                return
            else:
                self._finish(None)

    def abandon(self) -> None:
        self._abandon_members()
        super().abandon()

    def children(self) -> list[Node]:
        return self.members[: self._next]

    def unopened(self) -> bool:
        return self._next < len(self.members)

    def waiting(self) -> str:
        first = next((n for n in self.members[: self._next] if not n.settled and not n.gone and not n.held), None)
        done = f"gather at {self.position}, {self._good + self._failed} of {len(self.members)} ended"
        return f"{done}, first {first.waiting()}" if first else done

    @property
    def _running(self) -> int:
        """Members that are open and will end; held ones count, they are let go in time."""
        return self._next - self._good - self._failed - self._gone

    def _join(self, one_by_one: bool) -> str:
        """What the members wait for together; empty if the end of each one may matter alone."""
        alone = one_by_one or self.rules.needed is not None or self.rules.tolerate > 0
        if alone or (self.parent is not None and not self.join):
            return ""
        return self.join or self.position

    def _open_next(self) -> None:
        node = self.members[self._next]
        self._next += 1
        node.open()

    def _stop(self) -> None:
        """After a failure no new member starts. Which ones that hits is recorded with the turn that decides it."""
        if self._stopped:
            return
        self._stopped = True
        key = f"stopped:{self.position}"
        text = self.run.marker(key)
        if text is not None:
            never = json.loads(text)
        elif self.run.replaying:
            never = []
        else:
            opened = self.members[: self._next]
            never = [index for index, node in enumerate(opened) if node.held and not node.settled]
            if never:
                self.run.markers[key] = json.dumps(never, separators=(",", ":"))
        for index in never:
            self.members[index].abandon()
        self._gone += len(never)

    def _finish(self, error: BaseException | None) -> None:
        self._abandon_members()
        self.run.put_back([message for node in self.members if node.gone for message in node.reclaim()])
        state = transitions.SUCCEEDED if error is None else transitions.FAILED
        self.run.close_row(Closing(position=self.position, state=state, at=self.run.now))
        if error is None:
            forgives = self.rules.forgives
            self.settle(self._shape([n.error if forgives and n.error else n.value for n in self.members], tuple))
            return
        if isinstance(error, WorkflowError):
            error.__dict__.update(
                results=self._shape([n.value for n in self.members], list),
                errors=self._shape([n.error for n in self.members], list),
            )
        self.settle(error=error)

    def _abandon_members(self) -> None:
        for node in self.members[: self._next]:
            if not node.settled and not node.gone:
                node.abandon()

    def _first_error(self) -> BaseException | None:
        return next((node.error for node in self.members if node.error is not None), None)

    def _shape(self, values: list[Any], kind: Callable[[list[Any]], Any]) -> Any:
        names = self.command.rules.names
        return kind(values) if names is None else dict(zip(names, values, strict=True))
