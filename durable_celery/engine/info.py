"""What a body may know of its instance: the same in a turn, for a query, in a fork and for the testing kit."""

from __future__ import annotations

from datetime import datetime

from durable_celery.ports import InstanceRow
from durable_celery.replayed import WorkflowInfo


def info_of(row: InstanceRow, now: datetime) -> WorkflowInfo:
    """Of a row that ``load`` gave; ``now`` is when an instance without a turn begins."""
    parent_id = row.parent_chain_id or row.parent_id
    return WorkflowInfo(
        id=str(row.chain_id), run_id=str(row.id), run_number=row.run_number, key=row.key, name=row.name,
        version=row.version, started_at=row.started_at or now, parent_id=str(parent_id) if parent_id else None,
    )  # fmt: skip
