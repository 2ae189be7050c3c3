"""What people and services outside do to a running program, and what is compared of two runs of it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from django_app.models import WorkflowInstance
from durable_celery import get_handle, runtime
from durable_celery.core import transitions
from durable_celery.core.failure import Failure
from tests.programs import body


class Outside:
    """Answers what instances ask for by their status text, each once, when all is quiet."""

    def __init__(self) -> None:
        self._done: set[tuple[str, str]] = set()

    def answer(self) -> bool:
        """Do what is asked for; False if there was nothing."""
        asking = WorkflowInstance.objects.open().exclude(status_text="").order_by("created_at", "id")
        found = [(str(pk), text) for pk, text in asking.values_list("pk", "status_text")]
        new = [each for each in found if each not in self._done]
        for run_id, text in new:
            self._done.add((run_id, text))
            self._act(run_id, text)
        return bool(new)

    def _act(self, run_id: str, text: str) -> None:
        handle = get_handle(run_id)
        what, _, rest = text.partition(" ")
        if what == "cancel":
            assert handle.cancel("asked to") == "requested"
        elif what == "signal":
            body.asked.send(handle, int(rest.split()[0]), signal_id=text)
        else:
            name, _, numbers = rest.partition(":")
            for place, number in enumerate(json.loads(numbers)):
                handle.update(name, number, update_id=f"{run_id} {name} {place}", wait=False)


def outcome() -> dict[str, Any]:
    """Every run's state, result, error and journal, under names that are the same in each run of a program."""
    return {name: _run(row) for name, row in _named()}


def rows() -> int:
    """How many commands all journals hold."""
    return sum(len(runtime.current().store.history(row.pk)) for _, row in _named())


def unfinished() -> list[str]:
    """Instances that have not ended."""
    return [f"{name} {row.state}: {row.waiting_for}" for name, row in _named() if row.state in transitions.OPEN_STATES]


def _named() -> Iterator[tuple[str, WorkflowInstance]]:
    rows = {row.pk: row for row in WorkflowInstance.objects.all()}

    def name(row: WorkflowInstance) -> str:
        place = f"{name(rows[row.parent_id])}/{row.parent_position}" if row.parent_id else "root"
        return f"{place}#{row.run_number}"

    yield from sorted(((name(row), row) for row in rows.values()), key=lambda pair: pair[0])


def _run(row: WorkflowInstance) -> dict[str, Any]:
    entries = [
        {**{name: entry[name] for name in ("position", "kind", "name", "state", "args", "result")},
         "error": _type(entry["error"])}
        for entry in runtime.current().store.history(row.pk)
    ]  # fmt: skip
    return {"state": row.state, "result": row.result, "error": _type(row.failure), "journal": entries}


def _type(failure: str | None) -> str | None:
    return Failure.from_text(failure).type if failure else None
