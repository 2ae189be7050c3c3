"""What the tests of handlers, updates and queries share."""

from __future__ import annotations

from typing import Any

from durable_celery import Workflow, query, update
from durable_celery.core import asking
from tests.core.driver import Driver, a


def ask(run: Driver, name: str, *values: Any, turns: int | None = None) -> Any:
    from durable_celery import codec

    return asking.ask(
        run.body, run.args, {}, run.journal(), name=name, values=list(values),
        turn=run.turns if turns is None else turns, ended=not run.open, now=run.now, started_at=run.started_at,
        decode=codec.decode, encode=lambda value, root: codec.encode(value, root=root), fails_on=run.fails_on,
    )  # fmt: skip


def counting() -> Workflow[int]:
    total = [0]

    def add(number: int) -> int:
        total[0] += number
        return total[0]

    def positive(number: int) -> None:
        if number < 0:
            raise ValueError(f"{number} is negative")

    update("add", add, positive)
    query("total", lambda: total[0])
    yield from a()
    return total[0]
