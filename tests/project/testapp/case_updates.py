"""A workflow that is updated and asked by many, for workers that run as processes."""

from __future__ import annotations

from durable_celery import Signal, Workflow, query, update, wait_until, workflow

noted = Signal("case_updates.noted", int)


@workflow
def tally(wanted: int) -> Workflow[tuple[list[int], list[int]]]:
    added: list[int] = []
    seen: list[int] = []

    def add(number: int) -> int:
        added.append(number)
        return len(added)

    def new(number: int) -> None:
        if number in added:
            raise ValueError(f"{number} was there")

    update("add", add, new)
    query("added", lambda: added)
    noted.on(seen.append)
    yield from wait_until(lambda: len(added) >= wanted and len(seen) >= wanted, timeout=600)
    return added, seen
