"""Breaks what runs: one fault after the other, each with what must follow it (a thaw, a restart) some seconds later.

A fault is effective if it hit something: a process that lived, messages that were there, connections that were open,
a lock that somebody waited for. One that was not is tried again a little later, until it is too late.
"""

from __future__ import annotations

import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tests.chaos.brokers import wipe_something
from tests.chaos.fleet import GRACE, LEASE, Fleet, Member
from tests.chaos.plan import Fault
from tests.processes import children_of, signal_to

Claims = Mapping[int, Sequence[tuple[str, int]]]  # by process id: idempotency key and attempt of what it runs

OF_PROCESSES = ("kill worker", "kill child", "kill Beat", "freeze", "deploy")
LATE = 60.0  # seconds after the last fault of the plan
PAUSE = 1.5  # seconds before an ineffective one is tried again
PATIENCE = 20.0  # seconds for a service that was restarted to answer


@dataclass(frozen=True, slots=True, kw_only=True)
class Kill:
    """When processes were killed (Unix time), and the attempts they were at."""

    at: float
    claims: Sequence[tuple[str, int]]


@dataclass(kw_only=True)
class Chaos:
    """``claims()`` reads what is claimed now; empty where the database does not answer."""

    fleet: Fleet
    database: Any
    broker: Any
    claims: Callable[[], Claims]
    due: list[Fault]
    effective: Counter[str] = field(default_factory=Counter)
    kills: list[Kill] = field(default_factory=list)
    _later: list[tuple[float, Callable[[], object]]] = field(default_factory=list)
    _last: float = 0.0

    def __post_init__(self) -> None:
        self._last = max((fault.at for fault in self.due), default=0.0) + LATE

    def go_on(self, now: float) -> None:
        """Do what is due at ``now``, in seconds since the run began."""
        self._follow_up()
        if self.due and self.due[0].at <= now:
            fault = self.due.pop(0)
            if self._strike(fault):
                self.effective[fault.kind] += 1
            elif now < self._last:
                self.due.append(replace(fault, at=now + PAUSE))
                self.due.sort(key=lambda one: one.at)

    def finish(self) -> None:
        """Wait for all that must follow: nothing stays frozen or down."""
        while self._later:
            self._follow_up()
            time.sleep(0.05)
        self._wait_for(self.database)
        self._wait_for(self.broker)

    # -- one fault

    def _strike(self, fault: Fault) -> bool:
        strikes: dict[str, Callable[[Fault], bool]] = {
            "kill worker": self._kill_worker,
            "kill child": self._kill_child,
            "kill Beat": self._kill_beat,
            "freeze": self._freeze,
            "deploy": self._deploy,
            "cut database": lambda fault: self.database.cut() > 0,
            "lock conflict": self._lock,
            "restart database": self._restart_database,
            "wipe broker": lambda fault: wipe_something(self.broker, seconds=2) > 0,
            "cut broker": lambda fault: self.broker.cut() > 0,
            "restart broker": self._restart_broker,
        }
        try:
            if fault.kind not in OF_PROCESSES:
                self._wait_for(self.broker if "broker" in fault.kind else self.database)
            return strikes[fault.kind](fault)
        except Exception as error:  # of whichever driver: the service is being broken
            print(f"{fault.kind}: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
            return False

    def _kill_worker(self, fault: Fault) -> bool:
        """While it runs something, if it does within a second; all of it at once."""
        member = self._pick(self.fleet.workers(), fault)
        if member is None:
            return False
        deadline = time.monotonic() + 1
        while time.monotonic() < deadline:
            if claims := self._frozen_claims(member):
                break
            time.sleep(0.02)
        return self._kill(member, claims, down=fault.share * 2)

    def _kill_child(self, fault: Fault) -> bool:
        """One that runs something: an idle one may hold the lock of Celery's own pipe, and Celery waits for it."""
        member = self.fleet.members["prefork"]
        deadline = time.monotonic() + 3
        while time.monotonic() < deadline and not member.frozen:
            children = children_of(member.worker.pid) if not member.worker.ended() else []
            for pid in children:
                signal_to(pid, signal.SIGSTOP)
            claimed = self.claims()
            hit = [pid for pid in children if claimed.get(pid)][:1]
            for pid in children:
                signal_to(pid, signal.SIGKILL if pid in hit else signal.SIGCONT)
            if hit:
                self.kills.append(Kill(at=time.time(), claims=claimed[hit[0]]))
                return True
            time.sleep(0.02)
        return False

    def _kill_beat(self, fault: Fault) -> bool:
        member = self._pick(self.fleet.beats(), fault)
        return member is not None and self._kill(member, [], down=fault.share * 4)

    def _freeze(self, fault: Fault) -> bool:
        """For longer than a lease, as often as not."""
        member = self._pick([*self.fleet.workers(), *self.fleet.workers(), *self.fleet.beats()], fault)
        if member is None or not member.signal(signal.SIGSTOP):
            return False
        member.frozen = True
        self._after(0.5 + fault.share * (LEASE + 3), lambda: self._thaw(member))
        return True

    def _deploy(self, fault: Fault) -> bool:
        """Not before one of the last is through, or a slow machine never has a worker that is ready."""
        if not any(member.is_ready() for member in self.fleet.workers()):
            return False
        leaving = self.fleet.replace()
        self._after(GRACE, lambda: self._end_old(leaving))
        return True

    def _lock(self, fault: Fault) -> bool:
        waited: int = self.database.hold(0.4 + fault.share * 1.6, against_order=fault.choice < 0.5)
        return waited > 0

    def _restart_database(self, fault: Fault) -> bool:
        self.database.halt(hard=fault.choice < 0.5)
        self._after(fault.share * 2, self.database.relaunch)
        return True

    def _restart_broker(self, fault: Fault) -> bool:
        clients = self.broker.clients()
        self.broker.halt(hard=fault.choice < 0.5)
        self._after(fault.share * 2, self.broker.relaunch)
        return clients > 0

    # -- parts

    def _pick(self, members: Sequence[Member], fault: Fault) -> Member | None:
        found = [member for member in members if member.is_ready()]
        return found[int(fault.choice * len(found))] if found else None

    def _frozen_claims(self, member: Member) -> list[tuple[str, int]]:
        """What it runs, and then it is frozen; else it goes on."""
        member.signal(signal.SIGSTOP)
        claimed = self.claims()
        claims = [claim for pid in member.pids() for claim in claimed.get(pid, ())]
        if not claims:
            member.signal(signal.SIGCONT)
        return claims

    def _kill(self, member: Member, claims: Sequence[tuple[str, int]], *, down: float) -> bool:
        at = time.time()
        if not self.fleet.kill(member, down=down):
            return False
        self.kills.append(Kill(at=at, claims=claims))
        return True

    def _thaw(self, member: Member) -> None:
        member.frozen = False
        member.signal(signal.SIGCONT)

    def _end_old(self, leaving: Sequence[Member]) -> None:
        for member in leaving:
            if not member.worker.ended():
                self._kill(member, self._frozen_claims(member), down=0)

    def _after(self, seconds: float, action: Callable[[], object]) -> None:
        self._later.append((time.monotonic() + seconds, action))

    def _follow_up(self) -> None:
        for one in list(self._later):
            if one[0] <= time.monotonic():
                self._later.remove(one)
                one[1]()

    def _wait_for(self, service: Any) -> None:
        deadline = time.monotonic() + PATIENCE
        while not service.answers():
            self._follow_up()
            if time.monotonic() > deadline:
                raise TimeoutError(f"{service} does not answer for {PATIENCE} s")
            time.sleep(0.05)
