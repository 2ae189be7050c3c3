"""How a body is asked to end: what is given up at once, what is waited for, when ``CancelRequested`` is thrown. Pure.

Rules of this file:
- What no worker has claimed is given up at once; a claimed or shielded command is waited for, and if it succeeds its
  value comes first: the cancel is then thrown at the next yield, which asks for nothing.
- Which commands were waited for is recorded with the turn that decides it, so replay does not depend on later states.
- A command yielded while the cancel is being handled, or in a ``finally``, is cleanup and runs. One yielded elsewhere
  has swallowed it: it is thrown again, at most three times, and then the body is closed.
- Once asked, the run ends as asked, however the body leaves.
"""

from __future__ import annotations

import json
import sys
import weakref
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from durable_celery.core import scope, transitions
from durable_celery.core.decision import Decision
from durable_celery.core.failure import Failure
from durable_celery.core.journal import CANCEL, DEADLINE, Journal, Message
from durable_celery.errors import CancelRequested, WorkflowTimedOut, type_name

if TYPE_CHECKING:
    from types import FrameType

    from durable_celery.core.commands import Command
    from durable_celery.core.nodes import Node
    from durable_celery.core.run import Run

DRIVER = "durable_celery.core.run"  # the module whose frame is the lowest one below a body
THROWS = 4  # the first, and three more for a body that swallows it


class Cancelling:
    """The state of one run in this respect; ``message`` is the request, None if there was none."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self.message: Message | None = None
        self.thrown = 0
        self._waits: list[Node] = []
        self._last: weakref.ref[CancelRequested] | None = None  # the error thrown last, while anybody holds it

    @property
    def pending(self) -> bool:
        """Asked for and not thrown yet."""
        return self.message is not None and not self.thrown

    @property
    def complete(self) -> bool:
        """Everything waited for has ended."""
        return all(node.settled or node.gone for node in self._waits)

    def take(self, message: Message, awaited: Node) -> bool:
        """The request comes in; True if the cancel is to be thrown at the current yield. A second changes nothing."""
        if self.message is not None:
            return False
        self.message = message
        self._run.consumed(message)
        key = f"cancel:{message.id}"
        text = self._run.marker(key)
        self._waits, _ = _stop(awaited, None if text is None else set(json.loads(text)))
        if text is None and not self._run.replaying:
            self._run.markers[key] = json.dumps([node.position for node in self._waits], separators=(",", ":"))
            self._tell()
        return not self._waits

    def _tell(self) -> None:
        assert self.message is not None
        reason = reason_of(self._run, self.message)
        for node in self._waits:
            if not node.shielded:
                node.tell(f"its parent was asked to end: {reason}" if reason else "its parent was asked to end")

    def take_late(self, message: Message | None) -> bool:
        """A cancel stored before the turn in which the body ends anyway: whoever sent it was told that it counts.

        A deadline is nobody's wish; a body that ends in the very turn has kept it, unless it only goes on as another.
        """
        if message is None or self.message is not None:
            return False
        if message.kind != CANCEL and not self._run.continuing.takes_back(message):
            return False
        self.message = message
        self._run.consumed(message)
        return True

    def error(self) -> CancelRequested:
        """The exception to throw, one more time."""
        self.thrown += 1
        self._waits = []
        assert self.message is not None
        error = CancelRequested(reason_of(self._run, self.message))
        self._last = weakref.ref(error)
        return error

    def refuses(self, command: Command[Any], yielded: Any) -> bool:
        """Whether a command just yielded must not run: the cancel is due, or the body has swallowed it.

        A command that was not built where it was yielded does not know whether the cancel is being handled there. Then
        the error itself tells: Python keeps it for as long as its handler runs, and no longer.
        """
        if self.message is None:
            return False
        built_elsewhere = command is not yielded or command.throws < self._run.throws
        held = self._last is not None and self._last() is not None
        return not self.thrown or not (command.handles_cancel or (built_elsewhere and held))


def cleans_up(run: Run) -> bool:
    """Whether the calling code cleans up after a cancel of the run: it handles it, or leaves through a ``finally``.

    A ``return`` in the handler ends the handling before the ``finally`` runs; only the code itself tells of that one.
    """
    if sys.exc_info()[1] is not None and _handling():
        return True
    return run.cancelling.thrown > 0 and any(map(run.in_finally, _frames_of_the_body()))


def _frames_of_the_body() -> Iterator[FrameType]:
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_globals.get("__name__") != DRIVER:
        if not scope.ours(frame):
            yield frame
        frame = frame.f_back


def _handling() -> bool:
    """Whether a ``CancelRequested`` is being handled: in an ``except``, or in a ``finally`` that it unwinds."""
    error: BaseException | None = sys.exc_info()[1]
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        if isinstance(error, CancelRequested):
            return True
        seen.add(id(error))
        error = error.__context__
    return False


def reason_of(run: Any, message: Message) -> str:
    """The reason that was given."""
    return str(run.decode(message.payload) or "")


def outcome(message: Message, reason: str, left_by: BaseException | None = None) -> dict[str, Any]:
    """State and failure of a run that was asked to end; ``left_by`` is the error its cleanup ended with, if any."""
    after = f"; its cleanup failed: {type(left_by).__name__}: {left_by}" if left_by is not None else ""
    if message.kind == DEADLINE:
        name = type_name(WorkflowTimedOut)
        failure = Failure(type=name, types=(name,), message=f"{reason}{after}", timed_out=True)
        return {"state": transitions.FAILED, "failure": failure}
    failure = Failure(type="Cancelled", types=("Cancelled",), message=f"{reason}{after}", cancelled=True)
    return {"state": transitions.CANCELLED, "failure": failure}


def request(journal: Journal) -> Message | None:
    """The first request to end that is stored, taken in or not."""
    asked = [message for message in journal.messages if message.kind in (CANCEL, DEADLINE)]
    return min(asked, key=lambda m: (m.taken_turn is None, m.stored_at, m.id), default=None)


def without_body(journal: Journal, decode: Any) -> Decision:
    """The end of a run whose body is not to run any more: never started, BLOCKED, or over its time for cleanup."""
    message = request(journal)
    assert message is not None
    new = [m.id for m in journal.messages if m.kind in (CANCEL, DEADLINE) and m.taken_turn is None]
    return Decision(
        taken_messages={pk: order for order, pk in enumerate(new)},
        delivered_messages=tuple(new),
        **outcome(message, str(decode(message.payload) or "")),
    )


def _stop(node: Node, kept: set[str] | None) -> tuple[list[Node], bool]:
    """Give up what may be given up below ``node``; what is left to wait for, and whether it cannot end by itself now.

    ``kept`` are the recorded positions to wait for; None decides by what is claimed now.
    """
    if node.settled or node.gone:
        return [], False
    if node.shielded:
        return [node], False
    children = node.children()
    if children is not None:
        below = [_stop(child, kept) for child in children]
        node.frozen = node.stopped_by([gave_up for _, gave_up in below])
        return [wait for waits, _ in below for wait in waits], node.frozen
    if node.claimed() if kept is None else node.position in kept:
        return [node], node.halt()
    node.let_go()
    return [], True
