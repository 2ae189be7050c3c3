"""One attempt of a step: its row, its claim, its end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from durable_celery.ports.maps import Progress
from durable_celery.ports.turn import Dispatch


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenStep:
    """A step row as the judges of attempts and time-outs need it. Counters count what has happened so far."""

    id: int
    instance_id: UUID
    position: str
    kind: str
    name: str
    state: str
    options: str
    attempt: int
    failures: int
    deaths: int
    expiries: int
    resends: int
    token: str | None
    lease_id: UUID | None
    pid: int | None
    queue: str
    join: str
    group: str
    limited: bool
    scheduled_at: datetime
    started_at: datetime | None
    due_at: datetime | None
    start_by_at: datetime | None
    end_by_at: datetime | None
    close_at: datetime | None
    heartbeat_at: datetime | None
    look_at: datetime | None
    unknown_end: bool
    failure: str | None = None  # the last error so far (read by claim, open_steps, claims and due_steps alike)
    progress: Progress | None = None  # of a map, read by open_steps


@dataclass(frozen=True, slots=True, kw_only=True)
class Claimed:
    """A claim that was won: the row with its new token and attempt, and what the body needs.

    ``args`` is the encoded call. ``last_heartbeat`` are encoded details of an earlier attempt, or None.
    """

    step: OpenStep
    args: str
    last_heartbeat: str | None
    workflow: str
    context: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepChange:
    """New values of a step row. ``None`` in ``set_*`` style is explicit: every field here is written.

    ``final`` states set ``finished_at`` and make the row an outcome; ``look_at`` says when the sweep must look next.
    """

    state: str
    attempt: int
    failures: int
    deaths: int
    expiries: int
    token: str | None
    lease_id: UUID | None = None
    pid: int | None = None
    result: str | None = None
    failure: str | None = None
    due_at: datetime | None = None
    start_by_at: datetime | None = None
    close_at: datetime | None = None
    finished_at: datetime | None = None
    look_at: datetime | None = None
    unknown_end: bool = False
    resends: int = 0
    args: str | None = None  # None: as they are
    queue: str | None = None  # None: as it is


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptRecord:
    """A failed, lost or superseded attempt, kept for people.

    ``outcome`` is "failed", "timed out", "lost", "superseded".
    """

    attempt: int
    outcome: str
    failure: str | None
    result: str | None = None
    started_at: datetime | None
    finished_at: datetime
    node: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Changed:
    """Whether a guarded change hit its row (``ok``), and the held members it let go."""

    ok: bool
    promoted: Sequence[Dispatch] = ()
    stopped: bool = False  # another attempt was to follow, but the run is being cancelled: the row FAILED instead
