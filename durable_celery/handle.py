"""What is known and asked of an instance from outside, by its id."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar, cast
from uuid import UUID

from durable_celery import codec, payloads, repair, runtime, steering, updates
from durable_celery.combinators import count_of
from durable_celery.core import transitions
from durable_celery.core.handlers import Answer
from durable_celery.core.retry import LONGEST, seconds_of
from durable_celery.engine import asking, outlook
from durable_celery.errors import (
    BadValue,
    InstanceNotFound,
    UsageError,
)
from durable_celery.handle_async import HandleTwins, with_twins
from durable_celery.messages import checked_name
from durable_celery.outcomes import HistoryEntry, entry_of, outcome_of
from durable_celery.ports import InstanceRow
from durable_celery.twins import in_thread

R = TypeVar("R")

POLL_FIRST, POLL_MOST = 0.02, 0.5


@dataclass(slots=True, kw_only=True)
class Wait:
    """How long ``result`` waits, and how long until its next look; the looks become rarer."""

    seconds: float = 0.0
    deadline: float | None = None
    next_pause: float = POLL_FIRST

    @classmethod
    def until(cls, timeout: float | timedelta | None) -> Wait:
        if timeout is None:
            return cls()
        seconds = max(0.0, seconds_of(timeout, "timeout", minimum=-LONGEST.total_seconds()))
        return cls(seconds=seconds, deadline=time.monotonic() + seconds)

    @property
    def limit(self) -> float | None:
        """The seconds it lasts; None for ever."""
        return None if self.deadline is None else self.seconds

    def is_over(self) -> bool:
        return self.deadline is not None and time.monotonic() >= self.deadline

    def pause(self) -> float:
        pause, self.next_pause = self.next_pause, min(self.next_pause * 1.3, POLL_MOST)
        return pause if self.deadline is None else max(0.0, min(pause, self.deadline - time.monotonic()))


@with_twins
class WorkflowHandle(HandleTwins[R]):
    """An instance, by its id. Attributes are read afresh each time and follow continued runs.

    ``created`` is True if the call that returned this handle started the instance. Every method and attribute has an
    ``a`` twin for async code: ``await handle.asignal(...)``, ``await handle.astatus()``.
    """

    __slots__ = ("created", "id")

    def __init__(self, id: str, created: bool = False) -> None:
        self.id = id
        self.created = created

    def __repr__(self) -> str:
        return f"<workflow handle {self.id}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, WorkflowHandle) and other.id == self.id

    def __hash__(self) -> int:
        return hash(self.id)

    @property
    def run_id(self) -> str:
        """The id of the newest run."""
        return str(self._row().id)

    @property
    def key(self) -> str | None:
        """The business key."""
        return self._row().key

    @property
    def status(self) -> str:
        """The state, or PAUSED while it is paused."""
        return outlook.shown_state(self._row())

    @property
    def waiting_for(self) -> str:
        """In words: on what, since and until when; of a BLOCKED instance the error. Empty once closed."""
        row = self._row()
        return outlook.waiting_for(row, runtime.current().store.open_steps(row.id), runtime.current().clock.now())

    def result(self, timeout: float | timedelta | None = None) -> R:
        """Wait for the end and return the result.

        Raises ``WorkflowFailed``, ``WorkflowCancelled`` or ``WorkflowTerminated``; with a timeout (seconds)
        TimeoutError, without one ``WorkflowBlocked`` if it is BLOCKED. Refused inside ``atomic()``: there the result
        could not come.
        """
        wait = Wait.until(timeout)
        while True:
            row, pause = self._look(wait)
            if pause is None:
                return cast(R, outcome_of(row))
            time.sleep(pause)

    async def aresult(self, timeout: float | timedelta | None = None) -> R:
        """``result`` for async code: looks from time to time, and holds no thread in between."""
        wait = Wait.until(timeout)
        while True:
            row, pause = await in_thread(self._look)(wait)
            if pause is None:
                return cast(R, outcome_of(row))
            await asyncio.sleep(pause)

    def _look(self, wait: Wait) -> tuple[InstanceRow, float | None]:
        """The row, and seconds until the next look; None once it has ended."""
        if runtime.current().store.in_transaction():
            raise UsageError(
                f"result() of instance {self.id} inside atomic(): what is not committed cannot run, and an open "
                "transaction may not see the end; call it after the block"
            )
        runtime.current().idle()
        row = self._row()
        if row.state in transitions.FINAL_STATES:
            return row, None
        if row.state == transitions.BLOCKED and wait.deadline is None:
            return row, None
        if wait.is_over():
            raise TimeoutError(
                f"workflow {row.name} instance {self.id} is {self.status} after {wait.seconds:g} s: {self.waiting_for}"
            )
        if wait.deadline is None:
            runtime.current().refuse_endless(f"result() of instance {self.id}, which waits for {self.waiting_for}")
        return row, wait.pause()

    def signal(self, name: str, payload: Any = None, signal_id: str | None = None) -> None:
        """Send a message by name, in the current transaction; a second one with the same ``signal_id`` changes nothing.

        ``InstanceClosed`` if it has ended (nothing is stored then), ``InstanceNotFound`` if there is none.
        """
        runtime.client().signal(self, name, payload, signal_id)

    def query(self, name: str, *args: Any) -> Any:
        """Ask the body what its ``query(name, ...)`` answers after the last committed turn, also when it has ended.

        The body is replayed here, so this process needs the workflow's code; nothing is changed. Before its first turn
        it answers as it stands at its first yield. ``UsageError`` naming the queries there are for an unknown one,
        ``WorkflowBlocked`` if it is BLOCKED, ``NonDeterminism`` if the code here does not fit its journal; what the
        query itself raises comes as it is.
        """
        with payloads.of(self.id):
            return asking.answer(self._id(), checked_name("a query", name), args)

    def update(
        self,
        name: str,
        *args: Any,
        timeout: float | timedelta | None = None,
        update_id: str | None = None,
        wait: bool = True,
    ) -> Any:
        """Have the body run its ``update(name, ...)`` and wait for the answer.

        ``UpdateRejected`` if the validator refuses it (nothing is kept then), if the body takes no such update, or if
        its function raises. A second call with the same ``update_id`` runs nothing and gives the same answer, also
        after the end. ``timeout`` (timedelta or seconds): ``TimeoutError``, and the update is taken in later all the
        same. ``InstanceClosed`` if the instance has ended, or ends before it takes the update in. ``WorkflowBlocked``
        if it is BLOCKED and there is no timeout. ``wait=False`` returns the update's id at once, and joins the current
        transaction; with ``wait`` that is refused (``UsageError``).
        """
        sent = updates.send(self._id(), name, args, update_id, wait=wait)
        if not wait:
            return sent.update_id
        waited = Wait.until(timeout)
        while (answer := updates.look(sent, seconds=waited.limit, is_over=waited.is_over())) is None:
            time.sleep(waited.pause())
        return _value(answer)

    async def aupdate(
        self,
        name: str,
        *args: Any,
        timeout: float | timedelta | None = None,
        update_id: str | None = None,
        wait: bool = True,
    ) -> Any:
        """``update`` for async code: looks from time to time, and holds no thread in between."""
        sent = await in_thread(updates.send)(self._id(), name, args, update_id, wait=wait)
        if not wait:
            return sent.update_id
        waited = Wait.until(timeout)
        look = in_thread(updates.look)
        while (answer := await look(sent, seconds=waited.limit, is_over=waited.is_over())) is None:
            await asyncio.sleep(waited.pause())
        return _value(answer)

    def cancel(self, reason: str = "") -> str:
        """Ask it to end: ``CancelRequested`` is thrown at its current yield, its cleanup and compensations run.

        Joins the current transaction. "requested", or the final state it came too late for. A second call changes
        nothing; a BLOCKED instance is compensated without running its body, a paused one is resumed by it.
        """
        return steering.cancel(self._id(), reason)

    def terminate(self, reason: str = "") -> str:
        """End it at once: nothing more runs, nothing is compensated. "requested", or the final state it has.

        ``InstanceNotFound`` if there is none, ``BadValue`` for a reason that is no str.
        """
        return steering.terminate(self._id(), reason)

    def pause(self, reason: str = "") -> None:
        """Take no turn and start no step until ``resume``; attempts that run are finished and stored. Twice is once.

        ``InstanceClosed`` if it has ended.
        """
        steering.pause(self._id(), reason)

    def resume(self) -> None:
        """Go on; what fell due meanwhile is judged now, in order of time. ``InstanceClosed`` if it has ended."""
        steering.resume(self._id())

    def retry(self) -> None:
        """Reopen the last failure or block: the steps that failed start afresh, all others keep their results.

        ``NotRetryable``, with the reason, if compensation ran, if later steps ran, or if it neither failed nor is
        blocked.
        """
        steering.retry(self._id())

    def skip(self, position: str, result: Any = None) -> None:
        """Go on as if what stands at ``position`` had ended with ``result``.

        An open step ends SUCCEEDED with it. Of a FAILED instance the last failed step gets it, and the instance is
        reopened as by ``retry``. Of a BLOCKED instance whose body does not fit the journal there, what is recorded is
        set aside (``"2"`` is then ``"2!1"``) and a row of what the body asks for takes its place. ``BadValue`` if
        nothing is there, ``StepClosed`` if it has ended, ``NotRetryable`` with the reason if the body has gone on.
        """
        with payloads.of(self.id):
            repair.skip(self._id(), position, result)

    def retry_step(self, position: str) -> None:
        """Try the step at ``position`` again now: one that waits for its next attempt is due at once.

        One that FAILED starts afresh, if the body has not gone on since; a FAILED instance is reopened by that as by
        ``retry``. ``NotRetryable`` says why not: it is RUNNING, it has a result, the body has seen it fail.
        ``BadValue`` if no step is there.
        """
        repair.retry_step(self._id(), position)

    def fork(self, position: str) -> WorkflowHandle[R]:
        """Start a new instance from everything recorded before ``position``; returns its handle.

        Same arguments, version, context and attributes, no key and no parent. Steps before the top-level yield of
        ``position`` keep their results and do not run again; from there on the new one goes its own way. This one stays
        as it is: end it, if both may not go on. ``BadValue`` if it never came to that position.
        """
        return WorkflowHandle(str(repair.fork(self._id(), position)), created=True)

    def complete_step(self, position: str, result: Any = None) -> None:
        """End the open step at a position of the journal with a result, as ``complete_step(token, result)`` does.

        ``StepClosed`` if it has ended; ``BadValue`` if no step is there.
        """
        steering.complete_step(steering.token_at(self._id(), position), result)

    def fail_step(self, position: str, error: BaseException | str = "failed from outside") -> None:
        """End the open step at a position with an error and without another attempt; the body gets ``StepFailed``.

        ``StepClosed`` if it has ended; ``BadValue`` if no step is there.
        """
        steering.fail_step(steering.token_at(self._id(), position), error)

    def history(self, of: str = "", start: int = 0, limit: int | None = None) -> list[HistoryEntry]:
        """The journal in order of position, compensations last.

        A ``map_step`` is one entry, whose result is the tuple of its members' (None until it ends, and where that would
        be too long for one row). ``of``: instead, the members of the map at this position, from ``start`` on, at most
        ``limit``. ``BadValue`` for what is no position or number, ``InstanceNotFound`` if there is none.
        """
        if not isinstance(of, str):
            raise BadValue(f"of={of!r:.80} is not allowed, expected the position of a map such as '3'", path="of")
        if count_of("start", start, 0, None) is None:
            raise BadValue("start=None is not allowed, expected an int >= 0", path="start")
        count_of("limit", limit, 0, None)
        rows = runtime.current().store.history(self._row().id, of=of, start=start, limit=limit)
        return [entry_of(row) for row in rows]

    def _id(self) -> UUID:
        return UUID(self.id)

    def _row(self) -> InstanceRow:
        row = runtime.current().store.find(self._id())
        if row is None:
            raise InstanceNotFound.of(self.id)
        return row


def _value(answer: Answer) -> Any:
    return None if answer.value is None else codec.decode(answer.value)
