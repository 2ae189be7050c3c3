"""What a workflow may yield. A command is built in the body, yielded once, and then lives as a row of the journal.

Building one registers it with the run in scope, so that a command built and never yielded is found. Arguments are
encoded when it is built; what the step gets is what was true then.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from durable_celery.core import scope
from durable_celery.core.cancelling import cleans_up
from durable_celery.errors import BadValue, UsageError

if TYPE_CHECKING:
    from durable_celery.core.run import Run

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
T_contra = TypeVar("T_contra", contravariant=True)


class Undoing(Protocol[T_contra]):
    """A step that takes back what gave a ``T``: it is called with the result, or None where it is unknown."""

    def __call__(self, result: T_contra | None, /) -> Any: ...
    def undo_with(self) -> Undo: ...


class Command(Generic[T_co]):
    """Something to be done durably; its value has the type ``T_co``.

    ``x = yield from command`` is the documented spelling (type checkers know ``x``); ``x = yield command`` does the
    same at run time. A command can be yielded once.
    """

    __slots__ = ("__weakref__", "_place", "_run", "handles_cancel", "throws", "used")
    what = "command"

    def __init__(self) -> None:
        run = scope.active()
        if run is None or run.inert:
            run = scope.required(self.describe(), self.instead())
        self._place = scope.calling(2)  # over this and the constructor of its kind
        self.used = False
        self._run: Run = run
        self.throws = run.throws
        self.handles_cancel = run.cancelling.message is not None and cleans_up(run)
        run.unyielded.built(self)

    def __iter__(self) -> Generator[Command[Any], Any, T_co]:
        if self._run.cancelling.message is not None:
            self.handles_cancel = cleans_up(self._run)
        value: T_co = yield self
        return value

    # Only for type checkers: an awaitable that is dropped is what mypy's `unused-awaitable` reports.
    def __await__(self) -> Generator[Command[Any], Any, T_co]:
        return self.__iter__()

    def __del__(self) -> None:
        run = getattr(self, "_run", None)
        if run is not None and not self.used:
            run.unyielded.dropped(self)

    @property
    def line(self) -> str:
        """Where it was built: ``function, line N of file``."""
        return scope.place(*self._place)

    @property
    def whole(self) -> bool:
        """Whether it was built to its end; one whose arguments were refused is nobody's to yield."""
        return True

    def __repr__(self) -> str:
        return f"<{self.describe()}>"

    def use(self) -> None:
        """Marks the command as yielded, or as a part of one; a second use raises ``UsageError``."""
        if self.used:
            raise UsageError(f"{self.describe()} built at {self.line} is yielded twice; build a new one for each yield")
        self.used = True

    def compensate_with(self: Command[T], undo: Command[Any] | Undoing[T]) -> Command[T]:
        """Take the step back if the instance ends FAILED or CANCELLED later; returns the same command.

        ``undo`` is a step command (``canvas(task.s(...))`` for an existing task), or a step that is called with the
        result (None where it is unknown). It runs as a durable step of its own, newest position first, for a step that
        succeeded or whose end is unknown. A second call, or a command that is no step, raises ``UsageError``.
        """
        with excusing(self, undo):
            raise UsageError(f"{self.describe()} cannot be compensated; put compensate_with on the steps in it")

    def describe(self) -> str:
        """The command in a few words, for errors and ``waiting_for``."""
        return self.what

    def instead(self) -> str:
        """What to use outside a workflow."""
        return "yield it from a generator decorated with @workflow"

    def parts(self) -> Sequence[Command[Any]]:
        """The commands directly inside this one."""
        return ()


@contextmanager
def excusing(*given: Any) -> Iterator[None]:
    """Where a call is refused, its error is what counts, not that the commands given to it were never yielded."""
    try:
        yield
    except UsageError:
        for command in given:
            if isinstance(command, Command):
                command.throws = -1
        raise


@dataclass(frozen=True, slots=True, kw_only=True)
class Undo:
    """A compensation as it is kept on the row: the step to run, with fixed arguments or with the result."""

    name: str
    args: str | None  # encoded call; None: called with the result
    terms: str  # JSON copied onto the row
    queue: str = ""

    def to_text(self) -> str:
        """ASCII JSON, for the row it belongs to."""
        return json.dumps({"name": self.name, "args": self.args, "terms": self.terms, "queue": self.queue})

    @classmethod
    def from_text(cls, text: str) -> Undo:
        """The compensation of a row."""
        data = json.loads(text)
        return cls(name=data["name"], args=data["args"], terms=data["terms"], queue=data.get("queue", ""))


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTerms:
    """The terms a step runs on, as they are when its row is written. Durations in seconds."""

    text: str  # JSON of all of them, copied onto the row
    schedule_to_start: float | None = None
    schedule_to_close: float | None = None


class StepCommand(Command[T_co]):
    """Run a step. ``args`` is the encoded call, or what makes it; ``terms`` what is copied onto the row."""

    __slots__ = ("_args", "name", "queue", "terms", "undo")
    what = "step"

    def __init__(self, *, name: str, args: str | Callable[[], str], terms: StepTerms, queue: str = "") -> None:
        self.name = name
        super().__init__()
        self._args = args
        self.terms = terms
        self.queue = queue
        self.undo: Undo | None = None

    @property
    def args(self) -> str:
        """The encoded call."""
        return self._args if isinstance(self._args, str) else self._args()

    def call_with(self, args: str | Callable[[], str]) -> None:
        """Give it its encoded call, or, where the row may have that already, what makes it."""
        self._args = args

    @property
    def replaying(self) -> bool:
        """Whether its row is expected to be there."""
        return self._run.replaying

    @property
    def whole(self) -> bool:
        return bool(self._args)

    def compensate_with(self: StepCommand[T], undo: Command[Any] | Undoing[T]) -> StepCommand[T]:
        with excusing(self, undo):
            if self.undo is not None:
                raise UsageError(f"{self.describe()} has a compensation already: {self.undo.name}")
            if not isinstance(undo, Command) and not hasattr(undo, "undo_with"):
                undo = self._run.adapt(undo) or undo
            if isinstance(undo, StepCommand):
                undo.use()
                self.undo = undo.as_undo()
            elif hasattr(undo, "undo_with"):
                self.undo = undo.undo_with()
            else:
                what = undo.describe() if isinstance(undo, Command) else repr(undo)
                raise BadValue(
                    f"compensate_with takes a step, or a step command with its arguments; got {what}", path="undo"
                )
        return self

    def as_undo(self) -> Undo:
        """This command as a compensation with fixed arguments."""
        return Undo(name=self.name, args=self.args, terms=self.terms.text, queue=self.queue)

    def describe(self) -> str:
        return f"step {self.name}"

    def instead(self) -> str:
        short = self.name.rpartition(".")[2]
        return (
            f"to run the body here use {short}.call(...), to send it to a worker without durability "
            f"{short}.delay(...), or yield {short}(...) from a generator decorated with @workflow"
        )


class TimerCommand(Command[None]):
    """Wait for a time: ``seconds`` from the turn that yields it, or until an aware UTC instant."""

    __slots__ = ("seconds", "until")
    what = "sleep"

    def __init__(self, *, seconds: float | None = None, until: datetime | None = None) -> None:
        super().__init__()
        self.seconds = seconds
        self.until = until

    def instead(self) -> str:
        return "outside, use start_delay= or a Beat schedule"


class SignalCommand(Command[T_co]):
    """Wait for a message. ``default`` is encoded, or None to raise ``SignalTimeout`` at the time-out."""

    __slots__ = ("default", "name", "seconds", "warn_seconds")
    what = "signal"

    def __init__(self, *, name: str, seconds: float | None, default: str | None, warn_seconds: float | None) -> None:
        self.name = name
        super().__init__()
        self.seconds = seconds
        self.default = default
        self.warn_seconds = warn_seconds

    def describe(self) -> str:
        return f"signal {self.name!r}"

    def instead(self) -> str:
        return "outside, use signal.send(handle, payload)"


class ShieldCommand(Command[T_co]):
    """Run a command to its end, whatever cancels the body."""

    __slots__ = ("member",)
    what = "shield"

    def __init__(self, member: Command[T_co]) -> None:
        super().__init__()
        member.use()
        self.member = member

    def describe(self) -> str:
        return f"shield of {self.member.describe()}" if hasattr(self, "member") else "shield"

    def parts(self) -> Sequence[Command[Any]]:
        return [self.member]


@dataclass(frozen=True, slots=True, kw_only=True)
class GatherRules:
    """How a gather ends; see ``gather``. ``names`` shape its value and are the code's; the rest is recorded."""

    names: tuple[str, ...] | None = None
    return_exceptions: bool = False
    limit: int | None = None
    needed: int | None = None
    tolerate: int = 0

    @property
    def forgives(self) -> bool:
        """Whether a member may fail and the gather goes on; the error then stands in its place in the value."""
        return self.return_exceptions or self.needed is not None or self.tolerate > 0

    def to_text(self) -> str:
        """The rules that are not the default, as JSON for the row; the store reads ``goes_on`` and ``tolerate``."""
        given = {
            "goes_on": self.forgives, "return_exceptions": self.return_exceptions, "limit": self.limit,
            "needed": self.needed, "tolerate": self.tolerate,
        }  # fmt: skip
        return json.dumps({name: value for name, value in given.items() if value}, separators=(",", ":"))

    def as_recorded(self, text: str) -> GatherRules:
        """These names with the rules of a row, which stay in force whatever the code says now."""
        data = json.loads(text)
        rules = {name: data[name] for name in ("return_exceptions", "limit", "needed", "tolerate") if name in data}
        return GatherRules(names=self.names, **rules)


class GatherCommand(Command[T_co]):
    """Run members side by side."""

    __slots__ = ("members", "rules")
    what = "gather"

    def __init__(self, members: Sequence[Command[Any]], rules: GatherRules) -> None:
        super().__init__()
        for command in members:
            command.use()
        self.members = list(members)
        self.rules = rules

    def describe(self) -> str:
        return f"gather of {len(self.members)}" if hasattr(self, "members") else "gather"

    def parts(self) -> Sequence[Command[Any]]:
        return self.members
