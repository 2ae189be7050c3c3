"""The lives a behaviour is checked in: nothing may depend on what a process remembers of a turn."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any

from django_app.models import WorkflowInstance
from durable_celery import WorkflowHandle, faults, runtime, step
from durable_celery.core import transitions
from durable_celery.engine import attempts
from durable_celery.testing.determinism import decide_twice
from durable_celery.testing.replaying import disagreement, recorded
from tests.pump import Hint, Killed, Pump, release

ran: list[Any] = []  # what the bodies of steps did, in order
numbers = count(1)


class Straight(Pump):
    """Each decision is taken twice from nothing, and must be the same."""

    def __enter__(self) -> Pump:
        super().__enter__()
        runtime.current().decide = decide_twice
        return self


class Dying(Pump):
    """The process of each turn dies once when it has decided, before it commits; another takes the message."""

    doomed = False
    depth = 0

    def __enter__(self) -> Pump:
        super().__enter__()
        faults.set_hook(self._reach)
        return self

    def deliver(self, hint: Hint) -> attempts.Ended | None:
        self.depth += 1
        try:
            if hint.step is None and self.depth == 1:  # a death would take the step around it along
                self.doomed = True
                super().deliver(hint)
                self.doomed = False
            return super().deliver(hint)
        finally:
            self.depth -= 1

    def _reach(self, name: str) -> None:
        if self.doomed and name == "turn.before_commit":
            raise Killed
        super()._reach(name)

    def _bury(self) -> None:
        kills = self._kills
        if self.doomed:
            self._kills = []
        super()._bury()
        self._kills = kills if self.doomed else self._kills


LIVES: dict[str, type[Pump]] = {"straight": Straight, "killed": Dying}


def assert_every_run_replays() -> None:
    """Each run's body asks again for what its journal holds, and for nothing else."""
    for row in WorkflowInstance.objects.filter(turn__gt=0).exclude(state=transitions.BLOCKED):
        found = disagreement(recorded(row.id))
        assert found is None, f"{row.name}: {found}"


def start(body: Callable[..., Any], *args: Any, **options: Any) -> WorkflowHandle[Any]:
    """An instance of a workflow made of this body, with options of ``@workflow``."""
    return release(f"checklist.{next(numbers)}", body, **options).start(*args)


def run(pump: Pump, body: Callable[..., Any], *args: Any, **options: Any) -> Any:
    """The result of a workflow made of this body, however long it takes."""
    handle = start(body, *args, **options)
    pump.finish()
    return handle.result(timeout=0)


def seconds(pump: Pump) -> float:
    """Since the test began."""
    from tests.pump import BEGIN

    return (pump.now - BEGIN).total_seconds()


@step(name="checklist.say", retry=None)
def say(what: Any) -> Any:
    ran.append(what)
    return what


@step(name="checklist.fail", retry=None)
def fail(what: str = "no luck") -> None:
    ran.append(what)
    raise ValueError(what)
