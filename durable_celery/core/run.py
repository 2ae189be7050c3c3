"""One run of a body while a turn drives it: where it stands, what it waits for, what it asked for. Pure.

Rules of this file:
- The body sees outcomes one by one in the order of ``journal.events``; each may resume it, and then it runs until it
  waits again. What it asks for in an event of an earlier turn must be in the journal; in this turn it is new.
- Whatever a helper gives the body depends on the journal, the turn's time and the label of the last event alone.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from durable_celery.core import complaints, conditions, handles, nodes, unread
from durable_celery.core import generator as generators
from durable_celery.core.cancelling import THROWS, Cancelling
from durable_celery.core.commands import Command
from durable_celery.core.conditions import ConditionNode
from durable_celery.core.continuing import ContinueCommand, Continuing, Leaving
from durable_celery.core.handlers import Handlers
from durable_celery.core.journal import CANCEL, DEADLINE, UPDATE, Event, Journal, Message
from durable_celery.core.ledger import Ledger
from durable_celery.core.patches import Patches
from durable_celery.core.tree import node_of
from durable_celery.core.unyielded import Unyielded
from durable_celery.errors import CancelRequested, NonDeterminism, WorkflowError

if TYPE_CHECKING:
    from types import FrameType


class Run(Ledger):
    """The state of a body being driven; the arguments are those of ``replay``."""

    def __init__(
        self,
        journal: Journal,
        *,
        turn: int,
        now: datetime,
        decode: Callable[[str], Any],
        encode: Callable[[Any, str], str],
        adapt: Callable[[Any], Command[Any] | None],
        fails_on: tuple[type[BaseException], ...],
        interrupts: Callable[[BaseException], bool],
        in_finally: Callable[[FrameType], bool],
        recorded_only: bool,
        info: Any,
    ) -> None:
        super().__init__(journal, decode=decode)
        self.turn = turn
        self.now = now
        self.encode = encode
        self.adapt = adapt
        self.failures: tuple[type[BaseException], ...] = (WorkflowError, *fails_on)
        self.interrupts = interrupts
        self.in_finally = in_finally
        self.recorded_only = recorded_only
        self.info = info
        self.spawned: list[nodes.Node] = []  # work beside the body that has not ended
        self.conditions: list[ConditionNode] = []  # open ones, as they were yielded
        self.risen: deque[nodes.Node] = deque()  # have ended beside what the current event is about
        self.status_text: str | None = None
        self.attributes: dict[str, Any] = {}
        self.closing = False
        self.inert = ""  # what runs now and may only look; see scope.looking
        self.teardowns = 0  # raised while closing
        self.throws = 0  # errors thrown into the body so far
        self.value: Any = None
        self.error: BaseException | None = None
        self.ordinals = 0  # commands opened for the body so far
        self._generator: Generator[Any, Any, Any] | None = None
        self._awaited: nodes.Node | None = None
        self.cancelling = Cancelling(self)
        self.continuing = Continuing(self)
        self.patches = Patches(self)
        self.handlers = Handlers(self)
        self.unyielded = Unyielded(self)

    # -- driving ---------------------------------------------------------------------------------------------------

    def start(self, body: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Run the body up to its first wait."""
        try:
            is_generator, made = generators.begin(body, args, kwargs)
        except BaseException as raised:
            if self.interrupts(raised):
                raise
            self._end(error=raised)
            return
        if is_generator:
            self._generator = made
            self._resume(None, None)
            self._come_to_rest()
        else:
            self._end(value=made)

    def feed(self, event: Event) -> bool:
        """Let the body see one outcome; False if nobody takes it in: of a row that another outcome has just made
        worthless, an update that is rejected, a result that its poll does not like."""
        if event.message is not None:
            self._mark(event, f"m{len(self.arrivals) + 1}")  # no id: a fork's copy of the message has another
            self.arrivals[event.message.id] = len(self.arrivals)
            if not self._take_message(event.message):
                del self.arrivals[event.message.id]  # a rejected update was never there
                return False
            self._come_to_rest()
            return True
        assert event.entry is not None
        position = event.entry.position
        if position in self.worthless:
            return False
        self._mark(event, position)
        node = self.leaves.get(position)
        if node is None:
            raise self.mismatch(position, complaints.words(event.entry), "nothing: it does not wait for this row")
        node.take(event)
        if position in self.again:
            return False
        self.rise(node)
        self._come_to_rest()
        return True

    def leave(self) -> bool:
        """Close the body where it stands; False if it refuses."""
        self.closing = True
        return self._generator is None or generators.close(self._generator, self.interrupts)

    def where(self) -> str:
        """The line the body stands at; empty before its start and after its end."""
        return generators.where(self._generator) if self._generator is not None and not self.ended else ""

    def waiting(self) -> str:
        """What the body waits for, in words."""
        return self._awaited.waiting() if self._awaited is not None else ""

    # -- for nodes -------------------------------------------------------------------------------------------------

    node = node_of

    def put_back(self, messages: Sequence[Message]) -> None:
        """Those who took these messages have lost: each goes to the next open wait, else it is unread again."""
        unread.put_back(self, messages)

    # -- inside ----------------------------------------------------------------------------------------------------

    def _mark(self, event: Event, label: str) -> None:
        self._last = event
        self.replaying = self.recorded_only or event.turn < self.turn
        self.now = max(self.now, event.at)
        self._label, self._ordinal = label, 0

    def _take_message(self, message: Message) -> bool:
        if message.kind in (CANCEL, DEADLINE):
            if self._awaited is not None and self.cancelling.take(message, self._awaited):
                self._throw_cancel()
            return True
        try:
            if message.kind == UPDATE:
                return self.handlers.apply(message)
            if message.kind != "signal" or self.handlers.receive(message):
                return True
        except NonDeterminism:
            raise
        except BaseException as raised:
            if self.interrupts(raised):
                raise
            self._end(error=raised)  # as if it had left the body
            return True
        waits = self.waits.get(message.name)
        if waits:
            node = waits[0]
            node.deliver(message)
            self.rise(node)
        else:
            self.unread.setdefault(message.name, deque()).append(message)
        return True

    def _come_to_rest(self) -> None:
        """What ended in consequence of an event rises too; then a cancel that had to wait may be due."""
        while not self.ended:
            if self.risen:
                self.rise(self.risen.popleft())
            elif not conditions.look(self) and not self._cancel_if_due():
                return

    def rise(self, node: nodes.Node) -> None:
        """A node may have settled: resume the body that waits for it, or ask what it is a member of."""
        while node.settled:
            if node is self._awaited:
                if self.cancelling.pending and node.error is not None:
                    self._throw_cancel()
                else:
                    self._resume(node.value, node.error)
                return
            if node.parent is None:
                return
            node = node.parent
            node.member_settled()

    def _cancel_if_due(self) -> bool:
        """Throw the cancel once everything it had to wait for has ended, and no value came of it; whether it was."""
        if not (self.cancelling.pending and self._awaited is not None and self.cancelling.complete):
            return False
        self._throw_cancel()
        return True

    def _throw_cancel(self) -> None:
        assert self._awaited is not None
        if not self._awaited.settled and not self._awaited.gone:
            self._awaited.abandon()
            self.put_back(self._awaited.reclaim())
        self._resume(None, None, cancel=True)

    def _resume(self, value: Any, error: BaseException | None, *, cancel: bool = False) -> None:
        """Drive the body until it waits for something that has not ended."""
        assert self._generator is not None
        if cancel:
            error = self.cancelling.error()
        while True:
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
            except BaseException as raised:
                if self.interrupts(raised):
                    raise
                self._end(error=raised)
                return
            error = None  # only the body's own handler may hold it on
            command = self._command(yielded)
            if self.cancelling.refuses(command, yielded):
                if self.cancelling.thrown >= THROWS:
                    self._close_swallower()
                    return
                value, error = None, self.cancelling.error()
                continue
            if isinstance(command, ContinueCommand):
                self.unyielded.require_all()
                value, error = None, self.continuing.leave(command, self.where())
                continue
            node = self._open(command)
            self._awaited = node
            if not node.settled:
                return
            value, error = node.value, node.error

    def _close_swallower(self) -> None:
        """The body swallowed every cancel; it is left where it stands, and the run ends as asked."""
        if self.leave():
            self._generator = None
        self.closing = False
        self._end(error=self.cancelling.error())

    def _command(self, yielded: Any) -> Command[Any]:
        self._complain()
        assert self._generator is not None
        over = generators.delegates_to_plain_iterable(self._generator)
        if over is not None:
            raise complaints.plain_iterable(over, self.where())
        command = yielded if isinstance(yielded, Command) else handles.joined(yielded) or self.adapt(yielded)
        if command is None:
            raise complaints.no_command(yielded, self.where())
        command.use()
        return command

    def _open(self, command: Command[Any]) -> nodes.Node:
        self.ordinals += 1
        node = self.node(command, str(self.ordinals), None)
        node.open()
        return node

    def _complain(self) -> None:
        self.patches.complain()
        self.unyielded.complain()

    def _end(self, value: Any = None, error: BaseException | None = None) -> None:
        self.patches.complain()
        if isinstance(error, Leaving):
            error = None
        if error is None:
            self._complain()
            self.unyielded.require_all(value)
        if (
            self.replaying
            and not self.recorded_only
            and (error is None or isinstance(error, (*self.failures, CancelRequested)))
        ):
            end = "its end by a return" if error is None else f"its end by {error!r:.200}"
            raise self.mismatch(str(self.ordinals + 1), "more of this run", end)
        self.ended, self.value, self.error = True, value, error
