"""The processes that run steps."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """One process incarnation that runs steps; never identified by a worker name."""

    id: UUID
    node: str
    boot_id: str
    pid_ns: str
    pid: int
    start_ticks: int
    expires_at: datetime
    dead_at: datetime | None = None
    queues: str = ""  # that it consumes, one a line; not read with the others
    code: str = ""  # what it can run, as it announced it; not read with the others
    lag: float = 0.0  # seconds by which its process was behind its queues at the last renewal


@dataclass(frozen=True, slots=True, kw_only=True)
class Announced:
    """What live processes announced alike: one of their nodes, what they can run and consume, and how far the slowest
    is behind. No ``queues``: they did not say."""

    node: str
    code: str
    queues: tuple[str, ...] = ()
    lag: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat:
    """What a body's heartbeat learns: whether its attempt is still current, and whether it is asked to stop."""

    current: bool
    cancel_requested: bool = False
