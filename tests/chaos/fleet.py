"""Workers of each pool and two Beats, kept up as a supervisor would: what ended is started again under its name."""

from __future__ import annotations

import json
import os
import re
import signal
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from tests.processes import Worker, children_of, start_beat, start_worker

LEASE = 4.0  # seconds
SETTINGS = {"LEASE": LEASE, "TICK": 0.3, "MAX_DEATHS": 10_000, "MAX_EXPIRIES": 10_000}
# On RabbitMQ Celery lets no second worker of a name in unless it is told to; a deploy has two for a while.
CELERY = {"control_queue_exclusive": False}
POOLS = {"prefork": 2, "threads": 3, "solo": 1}
BEATS = ("beat-1", "beat-2")
# By chance, at the engine's own points in each worker (docs/faults.md); beside what the plan breaks.
FAULTS = (
    "message.*:lose:2%; message.*:drop:1%; message.*:double:2%; message.*:unconfirmed:1%; message.*:reorder:2%;"
    "message.*:delay=700ms:2%; *.in_transaction:deadlock:0.5%; claim.in_statement:deadlock:0.5%; *:cut:0.1%"
)
# In the pool of a prefork worker alone: its main process reaches none of these.
KILLS = "claim.*:kill:0.2%; body.*:kill:0.2%; record.*:kill:0.2%; atomic.*:kill:0.5%; turn.*:kill:0.1%"
STRUCK = re.compile(r"fault \S+?:(\w+)\S* struck at (\S+)")
READY = {False: " ready.", True: "beat: Starting"}  # in the log of a worker, of a Beat
GRACE = 3.0  # seconds from SIGTERM to SIGKILL


@dataclass(kw_only=True)
class Member:
    """What runs under a name. ``down_until``: it is not started before (monotonic). ``frozen``: it has a SIGSTOP."""

    name: str
    worker: Worker
    down_until: float = 0.0
    frozen: bool = False

    @property
    def is_beat(self) -> bool:
        return self.name in BEATS

    def is_ready(self) -> bool:
        """It runs and works, as far as its log tells."""
        return not self.worker.ended() and not self.frozen and READY[self.is_beat] in self.worker.text()

    def pids(self) -> list[int]:
        """Its main process and its pool; none if it has ended."""
        return [] if self.worker.ended() else [self.worker.pid, *children_of(self.worker.pid)]

    def signal(self, number: signal.Signals) -> bool:
        """To its whole process group; False if nobody is left there."""
        try:
            os.killpg(self.worker.pid, number)
        except ProcessLookupError:
            return False
        return True


@dataclass(kw_only=True)
class Fleet:
    folder: Path
    members: dict[str, Member] = field(default_factory=dict)
    old: list[Member] = field(default_factory=list)
    starts: int = 0
    ended_alone: int = 0

    def start(self) -> None:
        for name in (*POOLS, *BEATS):
            self.members[name] = self._new(name)
        for member in self.members.values():
            if not member.is_beat:
                member.worker.wait_until_ready()

    def keep(self) -> None:
        """Start again what has ended, unless it is to stay down for a while."""
        for name, member in self.members.items():
            if member.worker.ended() and time.monotonic() >= member.down_until:
                if not member.down_until:
                    self.ended_alone += 1
                self.sweep(member)
                self.members[name] = self._new(name)

    def workers(self) -> list[Member]:
        return [member for member in self.members.values() if not member.is_beat]

    def beats(self) -> list[Member]:
        return [member for member in self.members.values() if member.is_beat]

    def kill(self, member: Member, *, down: float) -> bool:
        """SIGKILL to all of it at once; it stays down for so many seconds."""
        lived = not member.worker.ended()
        member.signal(signal.SIGKILL)
        member.down_until = time.monotonic() + down
        return lived

    def replace(self) -> list[Member]:
        """A deploy: SIGTERM to all workers, new ones under their names beside them at once. Returns the old ones."""
        leaving = self.workers()
        for member in leaving:
            member.signal(signal.SIGTERM)
            self.members[member.name] = self._new(member.name)
        self.old += leaving
        return leaving

    def sweep(self, member: Member) -> None:
        """End what a dead main process may have left of its pool."""
        if not member.signal(signal.SIGKILL):
            return
        member.worker.process.poll()

    def clear(self) -> None:
        for member in (*self.members.values(), *self.old):
            member.signal(signal.SIGKILL)
        for member in (*self.members.values(), *self.old):
            member.worker.process.wait(timeout=30)

    def struck(self) -> Counter[str]:
        """What struck at the engine's points, by kind, as the workers' logs have it."""
        logs = [log.read_text(errors="replace") for log in self.folder.glob("*.log")]
        return Counter(kind for text in logs for kind, _ in STRUCK.findall(text))

    def _new(self, name: str) -> Member:
        self.starts += 1
        log = self.folder / f"{name}-{self.starts}.log"
        env = {"TEST_DURABLE_CELERY": json.dumps(SETTINGS), "TEST_CELERY": json.dumps(CELERY)}
        if name in BEATS:
            return Member(name=name, worker=start_beat(log, env=env))
        env["DURABLE_CELERY_FAULT"] = f"{FAULTS}; {KILLS}" if name == "prefork" else FAULTS
        options = ["-n", f"{name}@chaos"]
        worker = start_worker(log, pool=name, concurrency=POOLS[name], arguments=options, env=env)
        return Member(name=name, worker=worker)
