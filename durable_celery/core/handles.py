"""Work beside the body: started by ``spawn``, watched by whoever joins its handle. Pure.

Rules of this file:
- A spawn settles at once, with the handle; its row ends when what it started has ended.
- Spawned work belongs to the body's whole life and to no yield: no race gives it up, and a cancel of the body leaves it
  running until the body's end, which gives up what is still open.
- Joins and cancels of a handle take an ordinal and have no row: what they give follows from the rows of the work.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from durable_celery.core import complaints, identity, journal, scope, transitions
from durable_celery.core.commands import Command
from durable_celery.core.decision import Closing, Opening
from durable_celery.core.nodes import Node
from durable_celery.errors import UsageError

if TYPE_CHECKING:
    from durable_celery.core.run import Run

T_co = TypeVar("T_co", covariant=True)


class Handle(Generic[T_co]):
    """What ``spawn`` gives: work that goes on beside the body.

    ``yield from handle`` waits for its end, any number of times: its value, or its error raised. A handle may stand
    among the members of ``race`` and ``gather``, which then merely watch it. It lives in the body that spawned it: it
    can be neither returned nor handed to a step.
    """

    __slots__ = ("_work",)

    def __init__(self, work: Work) -> None:
        self._work = work

    def __iter__(self) -> Generator[Command[Any], Any, T_co]:
        value: T_co = yield from self.join()
        return value

    def __repr__(self) -> str:
        return f"<handle of {self._work.what}>"

    @property
    def done(self) -> bool:
        """Whether it has ended, as far as the body has seen: well, in an error, or cancelled. The same on replay."""
        scope.required("handle.done", "outside, look at the history of the instance", reads=True)
        return self._work.settled

    def join(self) -> Command[T_co]:
        """What ``yield from handle`` yields, as a command of its own."""
        return JoinCommand(self._work)

    def cancel(self) -> Command[bool]:
        """Give the work up: ``stopped = yield from handle.cancel()``. True if this did it, False if it had ended.

        What no worker has claimed never runs; a claimed step is told, gets no further attempt, and stays ABANDONED
        until it ends. A join then raises ``StepFailed`` with ``.cancelled`` (of a step), ``ChildFailed`` (of a child),
        or else ``WorkflowCancelled``. A second call changes nothing.
        """
        return StopCommand(self._work)


class SpawnCommand(Command[T_co]):
    """Start a command beside the body."""

    __slots__ = ("member",)
    what = "spawn"

    def __init__(self, member: Command[Any]) -> None:
        super().__init__()
        member.use()
        self.member = member

    def describe(self) -> str:
        return f"spawn of {self.member.describe()}" if hasattr(self, "member") else "spawn"

    def parts(self) -> Sequence[Command[Any]]:
        return [self.member]


class _OfHandle(Command[T_co]):
    __slots__ = ("work",)

    def __init__(self, work: Work) -> None:
        super().__init__()
        if work.run is not self._run:
            raise UsageError(
                f"the handle of {work.what} belongs to another run of a body (instance {work.run.instance_id}); "
                "a handle cannot be kept outside the body that spawned it"
            )
        self.work = work

    def describe(self) -> str:
        return f"{self.what} of {self.work.what}" if hasattr(self, "work") else self.what


class JoinCommand(_OfHandle[T_co]):
    """Wait for the end of spawned work."""

    __slots__ = ()
    what = "handle"


class StopCommand(_OfHandle[bool]):
    """Give spawned work up."""

    __slots__ = ()
    what = "cancel"


def joined(thing: Any) -> Command[Any] | None:
    """The join of a handle that stands where a command is expected; None if it is no handle."""
    return thing.join() if isinstance(thing, Handle) else None


class SpawnNode(Node):
    """The spawn itself; settles on opening."""

    __slots__ = ("command",)

    def __init__(self, run: Run, command: SpawnCommand[Any], position: str, parent: Node | None, **place: Any):
        super().__init__(run, position, parent, **place)
        self.command = command

    def open(self) -> None:
        if self._row(journal.SPAWN, "", 1) is None:
            self.run.openings.append(
                Opening(position=self.position, kind=journal.SPAWN, members=1, state=transitions.SCHEDULED,
                        group=self.group)
            )  # fmt: skip
        work = Work(self.run, self.command.member, self.position)
        work.open()
        self.settle(Handle(work))

    def waiting(self) -> str:
        return f"spawn at {self.position}"  # pragma: no cover - it never waits


class Work(Node):
    """What was spawned. It is a member of nothing; ``watchers`` are told its end."""

    __slots__ = ("member", "watchers", "what")

    def __init__(self, run: Run, command: Command[Any], position: str) -> None:
        super().__init__(run, position, None)
        self.what = f"{command.describe()} at {position}"
        self.watchers: list[WatchNode] = []
        # Shielded: a cancel of the body is no cancel of its work.
        self.member = run.node(command, identity.member(position, 0), self, join="", shielded=True)

    def open(self) -> None:
        self.run.spawned.append(self)
        self.member.open()
        self.member_settled()

    def member_settled(self) -> None:
        if self.settled or not self.member.settled:
            return
        state = transitions.SUCCEEDED if self.member.error is None else transitions.FAILED
        self.run.close_row(Closing(position=self.position, state=state, at=self.run.now))
        self._end(self.member.value, self.member.error)

    def stop(self) -> bool:
        """Give it up, unless it has ended; whether that was done."""
        self.member_settled()
        if self.settled:
            return False
        self.member.abandon()
        self.run.withdraw(self.position)
        self._end(error=self.member.given_up())
        self.run.put_back(self.member.reclaim())
        return True

    def waiting(self) -> str:
        return f"spawned {self.member.waiting()}"

    def _end(self, value: Any = None, error: BaseException | None = None) -> None:
        self.run.spawned.remove(self)
        self.settle(value, error)
        for watcher in self.watchers:
            watcher.settle(value, error)
            self.run.risen.append(watcher)  # after what is rising now
        self.watchers = []


class _WithoutRow(Node):
    """Stands at a position at which the journal has nothing."""

    __slots__ = ("command",)

    def __init__(self, run: Run, command: _OfHandle[Any], position: str, parent: Node | None, **place: Any):
        super().__init__(run, position, parent, **place)
        self.command = command

    def open(self) -> None:
        entry = self.run.entries.get(self.position)
        if entry is not None:
            raise self.run.mismatch(self.position, complaints.words(entry), self.command.describe())

    def waiting(self) -> str:
        return self.command.work.waiting()


class WatchNode(_WithoutRow):
    """Somebody waits for spawned work."""

    __slots__ = ()

    def open(self) -> None:
        super().open()
        work = self.command.work
        if work.settled:
            self.settle(work.value, work.error)
        else:
            work.watchers.append(self)

    def abandon(self) -> None:
        self.gone = True
        self.command.work.watchers.remove(self)


class StopNode(_WithoutRow):
    """Gives spawned work up; settles on opening."""

    __slots__ = ()

    def open(self) -> None:
        super().open()
        self.settle(self.command.work.stop())
