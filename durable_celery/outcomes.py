"""What became of an instance and of each row of its journal, as values people work with."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from durable_celery import calls, codec
from durable_celery.core import journal, transitions
from durable_celery.core.failure import Failure
from durable_celery.errors import WorkflowBlocked, WorkflowCancelled, WorkflowFailed, WorkflowTerminated
from durable_celery.ports import InstanceRow


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryEntry:
    """One row of ``handle.history()``. ``attempts`` counts starts; ``error`` is a Failure, ``result`` is decoded."""

    position: str
    kind: str
    name: str
    state: str
    args: Any
    result: Any
    error: Failure | None
    attempts: int
    scheduled_at: datetime | None
    started_at: datetime | None
    finished_at: datetime | None
    turn: int | None


def outcome_of(row: InstanceRow) -> Any:
    """The value of an instance that has completed; of one that ended otherwise, or is BLOCKED, its error is raised."""
    if row.state == transitions.COMPLETED:
        return None if row.result is None else codec.decode(row.result)
    ids = {"instance_id": str(row.chain_id)}
    if row.state == transitions.BLOCKED:
        raise WorkflowBlocked(
            f"workflow {row.name} instance {row.chain_id} is {row.waiting_for}", waiting_for=row.waiting_for, **ids
        )
    failure = Failure.from_text(row.failure) if row.failure else Failure(type="", message="")
    what = f"workflow {row.name} instance {row.chain_id}"
    if row.state == transitions.CANCELLED:
        raise WorkflowCancelled(f"{what} was cancelled: {failure.message}", reason=failure.message, **ids)
    if row.state == transitions.TERMINATED:
        raise WorkflowTerminated(f"{what} was terminated: {failure.message}", reason=failure.message, **ids)
    raise WorkflowFailed(
        f"{what} failed: {failure.brief}",
        error_type=failure.type,
        error_types=failure.types,
        message=failure.message,
        traceback=failure.traceback,
        attributes=failure.attributes,
        causes=failure.causes,
        **ids,
    )


def entry_of(row: Mapping[str, Any]) -> HistoryEntry:
    """A row of the store's history with its values decoded; one that cannot be read stays as it is stored."""
    return HistoryEntry(
        position=row["position"],
        kind=row["kind"],
        name=row["name"],
        state=row["state"],
        args=_shown(calls.decode_call, row["args"]) if row["args"] else ((), {}),
        result=None if row["result"] is None else _shown(_reader(row["kind"]), row["result"]),
        error=Failure.from_text(row["error"]) if row["error"] else None,
        attempts=row["attempts"],
        scheduled_at=row["scheduled_at"],
        started_at=row["started_at"],
        finished_at=row["finished_at"],
        turn=row["turn"],
    )


def _reader(kind: str) -> Callable[[str], Any]:
    """How results of a kind are read: the row of a map has those of its members in a list."""
    return (lambda text: tuple(codec.decode(text))) if kind == journal.MAP else codec.decode


def _shown(read: Callable[[str], Any], text: str) -> Any:
    try:
        return read(text)
    except Exception:  # noqa: BLE001 - a value whose class is gone must not hide the history
        return text
