"""Starts workflows and sends to them as the plan says, and notes what was accepted: a client process of its own.

Whatever goes wrong is tried again, as a client of the real world would do it: a start under its key, a message under
its id. So each ends in one of two ways: accepted, or refused because the instance had ended.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count
from pathlib import Path
from typing import Any

from tests.chaos import ledger
from tests.chaos.oracle import ACCEPTED, CLOSED
from tests.chaos.plan import Act, Start, make

PAUSE = 0.3  # seconds before it is tried again


class Driver:
    """One thing after the other; what is not accepted yet goes back into the queue, with all that follows it there."""

    def __init__(self, sent: Path) -> None:
        self._sent = sent
        self._ids: dict[str, str] = {}
        self._waiting: list[tuple[float, int, Start | Act]] = []
        self._next: dict[tuple[str, str], int] = {}
        self._failed: set[tuple[str, str, int]] = set()

    def run(self, work: list[Start | Act]) -> None:
        began, order = time.monotonic(), count()
        for one in work:
            heappush(self._waiting, (one.at, next(order), one))
        while self._waiting:
            at, _, one = heappop(self._waiting)
            time.sleep(max(0.0, began + at - time.monotonic()))
            if not self._is_next(one) or not self._try(one):
                heappush(self._waiting, (time.monotonic() - began + PAUSE, next(order), one))

    def _is_next(self, one: Start | Act) -> bool:
        """A run is started before anything is sent to it, and its messages go in the order of their numbers."""
        if isinstance(one, Start):
            return True
        return one.run in self._ids and self._next.get((one.run, one.kind), 0) == one.number

    def _try(self, one: Start | Act) -> bool:
        from django.db import connection

        kind, number = ("start", 0) if isinstance(one, Start) else (one.kind, one.number)
        try:
            if isinstance(one, Start):
                self._ids[one.run] = start(one)
                outcome = ACCEPTED
            else:
                outcome = send(one, self._ids[one.run])
                self._next[one.run, one.kind] = one.number + 1
        except Exception as error:
            print(f"{one.run}: {type(error).__name__}: {error}; again in {PAUSE} s", file=sys.stderr, flush=True)
            connection.close()
            self._failed.add((one.run, kind, number))
            return False
        unsure = (one.run, kind, number) in self._failed
        sent = {"run": one.run, "kind": kind, "number": number, "outcome": outcome, "unsure": unsure}
        ledger.append(self._sent, sent)
        return True


def start(one: Start) -> str:
    """Its id. A start whose answer was lost finds the one of its key, open or ended."""
    from durable_celery import KeyConflict
    from tests.chaos import workflows

    definition = getattr(workflows, one.script)
    try:
        return str(definition.using(key=one.run, reuse="reject").start(one.run, *one.args).id)
    except KeyConflict:
        return str(definition.get(key=one.run).id)


def send(one: Act, instance_id: str) -> str:
    from durable_celery import InstanceClosed, get_handle
    from tests.chaos.workflows import numbered

    handle = get_handle(instance_id)
    sends: dict[str, Callable[[], Any]] = {
        "signal": lambda: numbered.send(handle, one.number, signal_id=f"{one.run} {one.number}"),
        "update": lambda: handle.update("take", one.number, update_id=f"{one.run} {one.number}", wait=False),
        "cancel": lambda: handle.cancel("changed my mind"),
    }
    try:
        answer = sends[one.kind]()
    except InstanceClosed:
        return CLOSED
    return CLOSED if one.kind == "cancel" and answer != "requested" else ACCEPTED


def main(seed: int, duration: float) -> None:
    import django

    django.setup()
    plan = make(seed, duration, ())
    Driver(ledger.folder() / "sent").run([*plan.starts, *plan.acts])


if __name__ == "__main__":
    main(int(sys.argv[1]), float(sys.argv[2]))
