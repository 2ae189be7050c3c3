"""Bodies that the tests of continuing drive."""

from __future__ import annotations

from typing import Any

from durable_celery import Signal, Workflow, continue_as_new, workflow
from durable_celery.core.decision import Continuation, Decision
from tests.core.driver import Driver, a

inc = Signal("inc", int)


@workflow(name="core.counting", version=1)
def counting(total: int) -> Workflow[int]:
    value = yield from inc.wait()  # durable: ok
    return (yield from continue_as_new(total + value, workflow=counting))


@workflow(name="core.counting", version=3)
def counting_newer(total: int) -> Workflow[int]:
    yield from a()
    return total


def going_on(*args: Any) -> Workflow[int]:
    return (yield from continue_as_new(*args, workflow=counting))


def goes_on_with(run: Driver, total: int) -> Decision:
    """The decision of a run that continues with this total, as the highest version."""
    decision = run.turn()
    assert (decision.state, decision.value, decision.failure) == ("CONTINUED", None, None)
    assert decision.continuation is not None
    named = Continuation(name="core.counting", version=3, args=f"[[{total}],{{}}]", unread=decision.continuation.unread)
    assert decision.continuation == named
    return decision
