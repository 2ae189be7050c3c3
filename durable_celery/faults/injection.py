"""Faults at work: counted at each point, done where one is due."""

from __future__ import annotations

import logging
import os
import random
import signal
import subprocess
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, Protocol

from durable_celery.faults import skew
from durable_celery.faults.grammar import OF_MESSAGES, Fault

log = logging.getLogger("durable_celery.faults")

Send = Callable[[Any, float], object]


class InjectedFault(Exception):  # noqa: N818 - it is the fault
    """Raised by the kind ``raise``."""


class Database(Protocol):
    """What the kinds ``cut`` and ``deadlock`` need of the engine's database."""

    def cut(self) -> None:
        """Break this thread's connection under its owner."""

    def deadlock(self) -> BaseException:
        """The error with which this database reports a deadlock."""


class Injection:
    """Does these faults in this process. ``struck`` counts them by their text."""

    def __init__(self, faults: Sequence[Fault]) -> None:
        self.faults = faults
        self.struck: Counter[str] = Counter()
        self._lock = threading.Lock()
        self._times: Counter[int] = Counter()
        self._held: list[Any] = []

    def begin(self) -> None:
        """Do what waits for no point."""
        for fault in self.faults:
            if not fault.point:
                self._strike(fault, "the start")

    def reach(self, name: str) -> None:
        """This process is at a point."""
        for number, fault in enumerate(self.faults):
            if fault.kind not in OF_MESSAGES and self._is_due(number, fault, name):
                self._strike(fault, name)

    def post(self, name: str, message: Any, send: Send) -> bool:
        """Send a message, or do to it what its fault says; whether its sender is to think that it went out."""
        for number, fault in enumerate(self.faults):
            if fault.kind in OF_MESSAGES and self._is_due(number, fault, name):
                self._note(fault, name)
                return self._bend(fault, message, send)
        send(message, 0.0)
        self._send_held(send)
        return True

    def _is_due(self, number: int, fault: Fault, name: str) -> bool:
        if not fault.matches(name):
            return False
        with self._lock:
            self._times[number] += 1
            return fault.first <= self._times[number] <= fault.last and random.random() < fault.chance

    def _note(self, fault: Fault, name: str) -> None:
        self.struck[fault.text] += 1
        log.warning("fault %s struck at %s in process %s", fault.text, name, os.getpid())

    # -- at a point

    def _strike(self, fault: Fault, name: str) -> None:
        self._note(fault, name)
        if fault.kind == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        elif fault.kind == "stop":
            _stand_still(fault.seconds)
        elif fault.kind == "clock":
            skew.put_off(timedelta(seconds=fault.seconds))
        elif fault.kind == "raise":
            raise InjectedFault(f"fault {fault.text} at {name}")
        elif fault.kind == "cut" and name.startswith("message."):
            raise ConnectionResetError(f"fault {fault.text} at {name}")
        elif fault.kind == "cut":
            _database_of(fault).cut()
        else:
            raise _database_of(fault).deadlock()

    # -- to a message

    def _bend(self, fault: Fault, message: Any, send: Send) -> bool:
        if fault.kind == "drop":
            return False
        if fault.kind == "reorder":
            self._held.append(message)
        elif fault.kind == "delay":
            send(message, fault.seconds)
        elif fault.kind == "unconfirmed":
            send(message, 0.0)
            return False
        elif fault.kind == "double":
            send(message, 0.0)
            send(message, 0.0)
        return True

    def _send_held(self, send: Send) -> None:
        while self._held:
            send(self._held.pop(), 0.0)


_database: Database | None = None


def break_by(database: Database) -> None:
    """Let the kinds ``cut`` and ``deadlock`` be done by this."""
    global _database
    _database = database


def _database_of(fault: Fault) -> Database:
    if _database is None:
        raise RuntimeError(f"fault {fault.text} needs the database, and Django is not set up in this process")
    return _database


def _stand_still(seconds: float) -> None:
    """SIGSTOP to this process, and somebody who wakes it up again."""
    me = os.getpid()
    subprocess.Popen(
        ["/bin/sh", "-c", f"sleep {seconds}; kill -CONT {me}"],
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
    os.kill(me, signal.SIGSTOP)
