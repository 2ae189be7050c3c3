"""Live workers of old and of new code in one process."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any
from uuid import uuid4

from django_app.models import WorkflowInstance
from durable_celery import Signal, Workflow, patched, runtime, step, workflow
from durable_celery.engine import fleet
from durable_celery.ports import Lease
from durable_celery.registry import registry
from durable_celery.workflows import WorkflowDefinition
from tests.pump import Pump

NAME = "fleet.loan"
go = Signal("go", object)


@step(name="fleet.check")
def check(who: str) -> str:
    return f"checked {who}"


@step(name="fleet.pay")
def pay(who: str) -> str:
    return f"paid {who}"


def old_code(who: str) -> Workflow[list[str]]:
    yield from go.wait()  # durable: ok
    return [(yield from pay(who))]


def new_code(who: str) -> Workflow[list[str]]:
    yield from go.wait()  # durable: ok
    done: list[str] = []
    if patched("check"):
        done.append((yield from check(who)))
    done.append((yield from pay(who)))
    return done


old_code.__qualname__ = new_code.__qualname__ = old_code.__name__ = new_code.__name__ = "loan"
loan: WorkflowDefinition[..., Any] = workflow(name=NAME)(old_code)


class Fleet:
    """Live workers by their code; ``take`` makes this process the one of that code."""

    def __init__(self, pump: Pump) -> None:
        self.pump = pump
        self.leases: dict[str, Lease] = {}

    def worker(
        self, name: str, body: Callable[..., Any], *, seconds: float = 10**6, queues: str = "", **options: Any
    ) -> None:
        with self.take(body, **options):
            code = fleet.announcement()
        self.leases[name] = Lease(
            id=uuid4(), node=f"{name}@host", boot_id="", pid_ns="", pid=1, start_ticks=1, code=code,
            queues=queues,
            expires_at=self.pump.now + timedelta(seconds=seconds),
        )  # fmt: skip
        runtime.current().store.open_lease(self.leases[name])

    def gone(self, name: str) -> None:
        runtime.current().store.close_lease(self.leases.pop(name).id)

    @contextmanager
    def take(self, body: Callable[..., Any], **options: Any) -> Iterator[WorkflowDefinition[..., Any]]:
        before = dict(registry._workflows)
        body.__module__ = __name__  # whichever file holds it: two modules cannot have one name
        try:
            yield workflow(name=NAME, **options)(body)
        finally:
            registry._workflows.clear()
            registry._workflows.update(before)


def row_of(handle: Any) -> WorkflowInstance:
    return WorkflowInstance.objects.get(pk=handle.id)


def after_the_check(pump: Pump, fleets: Fleet) -> Any:
    """A run that a new worker has let in: its check has ended, and nobody has taken that in."""
    handle = loan.start("ann")
    with fleets.take(new_code):
        pump.drain()
        go.send(handle)
        (hint,) = pump.ready()
        pump.deliver(hint)
    (hint,) = pump.ready()
    assert hint.name == "fleet.check"
    return handle
