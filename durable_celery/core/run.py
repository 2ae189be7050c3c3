"""One run of a body while a turn drives it: where it stands, what it waits for, what it asked for. Pure.

Rules of this file:
- The body sees outcomes one by one in the order of ``journal.events``; each may resume it, and then it runs until it
  waits again. What it asks for in an event of an earlier turn must be in the journal; what it asks for in this turn is new.
- Whatever a helper gives the body depends on the journal, the turn's time and the label of the last event alone.
"""

from __future__ import annotations

import random as dice
import sys
import uuid
import weakref
from collections import deque
from collections.abc import Callable, Generator
from datetime import datetime
from typing import Any

from durable_celery.core import generator as generators
from durable_celery.core import nodes
from durable_celery.core.commands import Command, Undo
from durable_celery.core.decision import Closing, Opening
from durable_celery.core.journal import Entry, Event, Journal, Message
from durable_celery.errors import NonDeterminism, UsageError, WorkflowError


class Run:
    """The state of a body being driven. ``adapt`` turns foreign yieldables (Celery signatures) into commands, or None."""

    def __init__(
        self,
        journal: Journal,
        *,
        turn: int,
        now: datetime,
        decode: Callable[[str], Any],
        encode: Callable[[Any, str], str],
        adapt: Callable[[Any], Command[Any] | None],
        info: Any,
    ) -> None:
        self.journal = journal
        self.instance_id = journal.instance_id
        self.turn = turn
        self.now = now
        self.decode_text = decode
        self.encode = encode
        self.adapt = adapt
        self.info = info
        self.entries: dict[str, Entry] = {entry.position: entry for entry in journal.entries}
        self.markers: dict[str, str] = {}
        self.openings: list[Opening] = []
        self.closings: list[Closing] = []
        self.withdrawn: list[str] = []
        self.leaves: dict[str, Any] = {}
        self.waits: dict[str, list[nodes.SignalNode]] = {}
        self.unread: dict[str, deque[Message]] = {}
        self.status_text: str | None = None
        self.attributes: dict[str, Any] = {}
        self.replaying = False
        self.closing = False
        self.throws = 0  # errors thrown into the body so far
        self.ended = False
        self.value: Any = None
        self.error: BaseException | None = None
        self._label = "start"
        self._ordinal = 0
        self._ordinals = 0  # yields so far
        self._generator: Generator[Any, Any, Any] | None = None
        self._awaited: nodes.Node | None = None
        self._built: dict[int, weakref.ref[Command[Any]]] = {}
        self._complaint: UsageError | None = None

    # -- driving ---------------------------------------------------------------------------------------------------

    def start(self, body: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Run the body up to its first wait."""
        is_generator, made = generators.begin(body, args, kwargs)
        if is_generator:
            self._generator = made
            self._resume(None, None)
        else:
            self._end(value=made)

    def feed(self, event: Event) -> None:
        """Let the body see one outcome."""
        if event.message is not None:
            self._mark(event, f"m{event.message.id}")
            self._take_message(event.message)
        elif event.entry is not None:
            self._mark(event, event.entry.position)
            node = self.leaves.get(event.entry.position)
            if node is not None:
                node.take(event)
                self._rise(node)
            elif self.replaying and event.entry.position not in self.withdrawn:
                raise self.mismatch(event.entry.position, _words(event.entry), "nothing: the body does not wait for it")

    def leave(self) -> bool:
        """Close the body where it stands; False if it refuses."""
        self.closing = True
        return self._generator is None or generators.close(self._generator)

    def where(self) -> str:
        """The line the body stands at."""
        return generators.where(self._generator) if self._generator is not None else ""

    def waiting(self) -> str:
        """What the body waits for, in words."""
        return self._awaited.waiting() if self._awaited is not None else ""

    # -- for nodes -------------------------------------------------------------------------------------------------

    def match(self, position: str, kind: str, name: str, members: int, entry: Entry | None) -> None:
        """The journal and the body must agree at ``position``; ``NonDeterminism`` otherwise."""
        requested = _command_words(kind, name, members)
        if entry is None:
            if self.replaying:
                raise self.mismatch(position, "nothing", requested)
        elif (entry.kind, entry.name, entry.members) != (kind, name, members):
            raise self.mismatch(position, _words(entry), requested)

    def mismatch(self, position: str, recorded: str, requested: str) -> NonDeterminism:
        """The error that blocks the instance."""
        return NonDeterminism(
            f"the code does not fit the journal at position {position}: recorded is {recorded}, the body now asks for "
            f"{requested} ({self.where() or 'at its start'}). Nothing was changed. Usual causes: a step was added, removed or "
            "reordered without patched(), or the body looks at the clock, dice, the database or a set. Deploy code that fits "
            "(it is tried again by itself), or guard the change with patched()",
            position=position,
            recorded=recorded,
            requested=requested,
            instance_id=self.instance_id,
        )

    def withdraw(self, position: str) -> None:
        """Nobody waits for this row any more."""
        self.leaves.pop(position, None)
        self.withdrawn.append(position)

    def close_row(self, closing: Closing) -> None:
        """A timer, signal wait or gather has ended in this turn (earlier ones are in the journal as ended)."""
        if not self.replaying:
            self.closings.append(closing)

    def forget_wait(self, node: nodes.SignalNode) -> None:
        """The wait takes no message any more."""
        waits = self.waits.get(node.command.name, [])
        if node in waits:
            waits.remove(node)

    def decode(self, text: str | None) -> Any:
        """A stored value; None stands for None."""
        return None if text is None else self.decode_text(text)

    def decode_message(self, message: Message) -> Any:
        """The payload of a message."""
        return self.decode(message.payload)

    def undo_text(self, undo: Undo | None) -> str:
        """How a compensation is kept on the row."""
        return "" if undo is None else undo.to_text()

    # -- for helpers -----------------------------------------------------------------------------------------------

    def ordinal(self) -> str:
        """A label for the next dice, uuid or side effect: the last event and how many there were since."""
        self._ordinal += 1
        return f"{self._label}:{self._ordinal}"

    def dice(self) -> dice.Random:
        """A random.Random seeded by the run and the place in it."""
        return dice.Random(f"{self.instance_id}:{self.ordinal()}")

    def uuid(self) -> uuid.UUID:
        """A uuid (version 4 in form) that is the same on replay."""
        return uuid.UUID(int=self.dice().getrandbits(128), version=4)

    def marker(self, key: str) -> str | None:
        """The recorded text of a marker."""
        return self.markers.get(key, self.journal.markers.get(key))

    def built(self, command: Command[Any]) -> None:
        """A command was constructed in the body."""
        self._built[id(command)] = weakref.ref(command)

    def dropped(self, command: Command[Any], throws: int) -> None:
        """A command went away unused. After an error was thrown in since it was built, that is the error's doing."""
        self._built.pop(id(command), None)
        if not self.closing and not self.ended and throws == self.throws and sys.exc_info()[0] is None:
            self._complaint = self._complaint or _unyielded(command)

    # -- inside ----------------------------------------------------------------------------------------------------

    def _mark(self, event: Event, label: str) -> None:
        self.replaying = event.turn < self.turn
        self.now = max(self.now, event.at) if not self.replaying else event.at
        self._label, self._ordinal = label, 0

    def _take_message(self, message: Message) -> None:
        if message.kind != "signal":
            return
        waits = self.waits.get(message.name)
        if waits:
            node = waits[0]
            node.deliver(message)
            self._rise(node)
        else:
            self.unread.setdefault(message.name, deque()).append(message)

    def _rise(self, node: nodes.Node) -> None:
        while node.settled:
            if node is self._awaited:
                self._resume(node.value, node.error)
                return
            if node.parent is None:
                return
            node = node.parent
            node.member_settled()  # type: ignore[attr-defined]

    def _resume(self, value: Any, error: BaseException | None) -> None:
        assert self._generator is not None
        while not self.ended:
            self._awaited = None
            try:
                if error is not None:
                    self.throws += 1
                    yielded = self._generator.throw(error)
                else:
                    yielded = self._generator.send(value)
            except StopIteration as stop:
                self._end(value=stop.value)
                return
            except BaseException as raised:  # noqa: BLE001 - every way out of the body is judged by the caller
                if isinstance(raised, (KeyboardInterrupt, GeneratorExit)):
                    raise
                self._end(error=raised)
                return
            node = self._open(self._command(yielded))
            self._awaited = node
            if not node.settled:
                return
            value, error = node.value, node.error

    def _command(self, yielded: Any) -> Command[Any]:
        self._complain()
        assert self._generator is not None
        over = generators.delegates_to_plain_iterable(self._generator)
        here = self.where()
        if over is not None:
            raise UsageError(
                f"'yield from' over a {over} at {here}: to run commands side by side write yield from gather(a, b)",
                line=here,
            )
        command = yielded if isinstance(yielded, Command) else self.adapt(yielded)
        if command is None:
            raise UsageError(f"{_what(yielded)} was yielded at {here}; {_fix(yielded)}", line=here)
        command.use()
        return command

    def _open(self, command: Command[Any]) -> nodes.Node:
        self._ordinals += 1
        node = nodes.node_of(self, command, str(self._ordinals), None)
        node.open()
        return node

    def _complain(self) -> None:
        if self._complaint is not None:
            raise self._complaint

    def _end(self, value: Any = None, error: BaseException | None = None) -> None:
        if error is None:
            self._complain()
            for reference in list(self._built.values()):
                command = reference()
                if command is not None and not command.used and command.throws == self.throws:
                    raise _unyielded(command)
        if self.replaying:
            if error is not None and not isinstance(error, WorkflowError):
                raise error  # a bug, whatever the journal holds
            raise self.mismatch(
                str(self._ordinals + 1), "more of this run", f"its end ({'a ' + repr(error) if error else 'a return'})"
            )
        self.ended, self.value, self.error = True, value, error


def _unyielded(command: Command[Any]) -> UsageError:
    return UsageError(
        f"{command.describe()} was built at {command.line} and never yielded, so it did not run; "
        "write 'yield from' before it",
        line=command.line,
    )


def _what(yielded: Any) -> str:
    kind = type(yielded).__name__
    return "a generator" if kind == "generator" else f"{kind} {yielded!r:.80}"


def _fix(yielded: Any) -> str:
    if type(yielded).__name__ == "generator":
        return f"to run the helper generator {yielded.__name__}(...) use yield from {yielded.__name__}(...)"
    if isinstance(yielded, (list, tuple, set, dict)):
        return "to run commands side by side write yield from gather(a, b)"
    return "only commands can be yielded: a step call, sleep(...), signal.wait(...), gather(...)"


def _words(entry: Entry) -> str:
    return _command_words(entry.kind, entry.name, entry.members)


def _command_words(kind: str, name: str, members: int) -> str:
    return f"{kind} of {members} members" if kind == "gather" else f"{kind} {name}".strip()
