"""What a body lets the outside do while it runs: handlers of signals, queries, updates. Pure.

Rules of this file:
- Handlers and updates run in the order of events, before the body resumes, and again at the same place on replay.
- Queries and validators only look (``scope.looking``): they run at any time and are not repeated on replay.
- A rejected update was never there: it is no event, and no later turn sees it. An accepted one is an event for ever,
  whatever became of its function.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from durable_celery.core import scope
from durable_celery.core.failure import Failure, failure_of
from durable_celery.errors import BadValue, UsageError

if TYPE_CHECKING:
    from durable_celery.core.journal import Event, Message
    from durable_celery.core.run import Run


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What came of an update: the encoded value of its function, or the failure (as text) it or a validator raised."""

    value: str | None = None
    failure: str | None = None

    def to_text(self) -> str:
        """ASCII JSON for the message's row."""
        return json.dumps({"value": self.value} if self.failure is None else {"failure": self.failure})

    @classmethod
    def from_text(cls, text: str) -> Answer:
        """The answer of a row."""
        data = json.loads(text)
        return cls(value=data.get("value"), failure=data.get("failure"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Update:
    """An update as the body registered it."""

    function: Callable[..., Any]
    validate: Callable[..., Any] | None


class Handlers:
    """Those of one run. ``answers`` and ``rejected`` map ids of messages to what this turn answered."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._signals: dict[str, Callable[[Any], Any]] = {}
        self._queries: dict[str, Callable[..., Any]] = {}
        self._updates: dict[str, Update] = {}
        self._waited: set[str] = set()  # names the body has waited for
        self.answers: dict[int, str] = {}
        self.rejected: dict[int, str] = {}

    # -- registering -----------------------------------------------------------------------------------------------

    def on(self, name: str, handler: Callable[[Any], Any]) -> None:
        """Give the messages of this name to ``handler``, those kept unread first."""
        if name in self._waited:
            raise _both(name)
        self._signals[name] = handler
        kept = self._run.unread.get(name)
        try:
            while kept:
                self.receive(kept.popleft())
        except BaseException:
            # Whoever catches this and registers again gets the rest in order, before any newer one.
            self._signals.pop(name, None)
            raise

    def waits(self, name: str) -> None:
        """The body waits for messages of this name."""
        if name in self._signals:
            raise _both(name)
        self._waited.add(name)

    def query(self, name: str, function: Callable[..., Any]) -> None:
        """Answer queries of this name from now on."""
        self._queries[name] = function

    def update(self, name: str, function: Callable[..., Any], validate: Callable[..., Any] | None) -> None:
        """Take updates of this name from now on."""
        self._updates[name] = Update(function=function, validate=validate)

    # -- what comes in ---------------------------------------------------------------------------------------------

    def receive(self, message: Message) -> bool:
        """Give a signal to its handler; False if it has none. Raises what the handler raises."""
        handler = self._signals.get(message.name)
        if handler is None:
            return False
        self._run.consumed(message)
        _refuse_lazy(handler(self._run.decode(message.payload)), f"the handler of signal {message.name!r}")
        return True

    def missed(self, events: Iterable[Event]) -> list[Event]:
        """New signals among the events that a handler would have got, had the body not ended before."""
        given = self._run.delivered
        return [
            event
            for event in events
            if event.turn == self._run.turn and event.message is not None and event.message.kind == "signal"
            and event.message.name in self._signals and event.message.id not in given
        ]  # fmt: skip

    def apply(self, message: Message) -> bool:
        """Run an update and keep its answer; False if it is rejected, which leaves no trace of it.

        What was accepted once is never validated again: on replay, and in a turn that was taken back.
        """
        run, known = self._run, self._updates.get(message.name)
        values = run.decode(message.payload)
        if not (run.replaying or message.answered):
            refusal = self._refusal(message, known, values)
            if refusal is not None:
                self.rejected[message.id] = Answer(failure=refusal.to_text()).to_text()
                return False
        if known is None:
            what = f"nothing: the body takes no update of this name{_known(self._updates)}"
            raise run.mismatch(f"message {message.id}", f"update {message.name!r}", what)
        run.consumed(message)
        answer = self._answer(message, known, values)
        if not (run.replaying or message.answered):
            self.answers[message.id] = answer.to_text()
        return True

    def ask(self, name: str, values: Sequence[Any]) -> Any:
        """The answer of a query; ``UsageError`` if there is none of this name. Raises what its function raises."""
        function = self._queries.get(name)
        if function is None:
            raise BadValue(f"the body answers no query {name!r}{_known(self._queries)}", path="name")
        with scope.looking(self._run, f"query {name!r}"):
            value = function(*values)
        return _refuse_lazy(value, f"query {name!r}")

    # -- inside ----------------------------------------------------------------------------------------------------

    def _refusal(self, message: Message, known: Update | None, values: Sequence[Any]) -> Failure | None:
        try:
            if known is None:
                raise BadValue(f"the body takes no update {message.name!r} now{_known(self._updates)}", path="name")
            _check_call(known.function, values)
            if known.validate is not None:
                with scope.looking(self._run, f"the validator of update {message.name!r}"):
                    said = known.validate(*self._run.decode(message.payload))
                if _refuse_lazy(said, f"the validator of update {message.name!r}") is False:
                    raise ValueError("the validator returned False")
        except Exception as error:  # noqa: BLE001 - whatever a validator raises is its no
            if self._run.interrupts(error):
                raise
            return failure_of(error)
        return None

    def _answer(self, message: Message, known: Update, values: Sequence[Any]) -> Answer:
        what = f"update {message.name!r}"
        try:
            value = _refuse_lazy(known.function(*values), what)
            return Answer(value=self._run.encode(value, f"the answer of {what}"))
        except Exception as error:  # noqa: BLE001 - it is the sender's to know; the instance goes on
            if self._run.interrupts(error):
                raise
            return Answer(failure=failure_of(error).to_text())


def check_function(function: Any, what: str, arguments: int | None = None) -> None:
    """A plain function that takes as many arguments, or ``BadValue``: what a handler may be."""
    if not callable(function):
        raise BadValue(f"{what} must be a function, got {function!r:.80}", path="function")
    made = (inspect.unwrap(function), getattr(type(function), "__call__", None))  # noqa: B004 - of an object its own
    if any(is_lazy(called) for is_lazy in LAZY for called in made):
        raise BadValue(
            f"{what} must be a plain function, {getattr(function, '__qualname__', function)!r:.80} is a generator "
            "function or async: let it note what came, and yield in the body (wait_until(lambda: ...) wakes it)",
            path="function",
        )
    if arguments is not None:
        try:
            _check_call(function, [None] * arguments)
        except TypeError as error:
            raise BadValue(f"{what} is called with {arguments} argument(s): {error}", path="function") from None


LAZY = (inspect.isgeneratorfunction, inspect.iscoroutinefunction, inspect.isasyncgenfunction)


def _check_call(function: Callable[..., Any], values: Sequence[Any]) -> None:
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # a built-in tells nothing of its arguments
        return
    signature.bind(*values)


def _refuse_lazy(value: Any, what: str) -> Any:
    if inspect.isgenerator(value) or inspect.iscoroutine(value):
        value.close()
        raise UsageError(f"{what} returned a {type(value).__name__}, which nobody runs; it must be a plain function")
    return value


def _both(name: str) -> UsageError:
    return UsageError(
        f"signal {name!r} has waits and a handler: a message could go to either. Use signal.wait() or signal.on(), or "
        "two signals"
    )


def _known(names: Iterable[str]) -> str:
    listed = ", ".join(repr(name) for name in sorted(names))
    return f"; known are {listed}" if listed else "; it has registered none"
