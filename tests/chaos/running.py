"""One run, from the first start to the verdict. Needs Django set up and a database of its own."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from django_app.models import EngineHeartbeat, StepResult, WorkflowInstance
from django_app.store.rows import dispatch_of
from durable_celery import runtime
from durable_celery.core.journal import RUNS
from tests.chaos import ledger, reading
from tests.chaos.faults import Chaos
from tests.chaos.fleet import Fleet
from tests.chaos.oracle import Books, Finding, judge
from tests.chaos.plan import Plan
from tests.chaos.report import KILLS, Report, recoveries

STILL = 60.0  # seconds without any progress before what is open counts as stuck
PATIENCE = 900.0  # seconds at most for anything: a busy machine is slow, and not stuck
MESSAGES = 400  # sent once more at the end, at least, if there are so many rows
TICKS = 5  # after the last message was taken
ROUND = 0.05


def run(seed: int, duration: float, plan: Plan, database: Any, broker: Any, kinds: Sequence[str]) -> Report:
    folder = ledger.folder()
    fleet = Fleet(folder=folder)
    chaos = Chaos(fleet=fleet, database=database, broker=broker, claims=reading.claims, due=list(plan.faults))
    driver, began = None, time.monotonic()
    try:
        fleet.start()
        driver = start_driver(folder, seed, duration)
        lost_wakers = rage(chaos, driver, duration)
        say("everything is sent and struck", began)
        settle(fleet)
        say("everything has ended, or does not move", began)
        books = reading.read(folder, plan.starts)
        if not books.open_rows:  # else bodies run that have every right to
            books = replace(books, again=left_over(fleet, broker, books))
            say("what was left over has run", began)
        books = replace(books, open_rows=[*books.open_rows, *lost_wakers])
    finally:
        if driver is not None and driver.poll() is None:
            driver.kill()
            driver.wait()
        fleet.clear()
    if fleet.ended_alone:
        print(f"{fleet.ended_alone} workers or Beats ended by themselves and were started again")
    print(
        "at the engine's points:", ", ".join(f"{n} {kind}" for kind, n in sorted(fleet.struck().items())) or "nothing"
    )
    return report(duration, plan, chaos, kinds, books, judge(books))


def say(what: str, began: float) -> None:
    print(f"{time.monotonic() - began:6.1f} s: {what}", flush=True)


def report(
    duration: float, plan: Plan, chaos: Chaos, kinds: Sequence[str], books: Books, findings: Sequence[Finding]
) -> Report:
    return Report(
        duration=duration,
        workflows=len(plan.starts),
        kinds=kinds,
        effective=chaos.effective,
        kills=sum(chaos.effective[kind] for kind in KILLS),
        findings=findings,
        recovered=recoveries(chaos.kills, books.lines),
    )


def start_driver(folder: Path, seed: int, duration: float) -> subprocess.Popen[bytes]:
    with (folder / "driver.log").open("ab") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "tests.chaos.driver", str(seed), str(duration)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )


def rage(chaos: Chaos, driver: subprocess.Popen[bytes], duration: float) -> list[str]:
    """Until all faults have struck and everything is sent. Returns the open instances that kept waiting for nothing."""
    began, looked = time.monotonic(), time.monotonic()
    suspects: set[str] = set()
    found: set[str] = set()
    while chaos.due or driver.poll() is None:
        now = time.monotonic() - began
        chaos.go_on(now)
        chaos.fleet.keep()
        if time.monotonic() - looked > 3:
            again = reading.without_waker()
            found |= suspects & again
            suspects, looked = again, time.monotonic()
        if now > duration + PATIENCE:
            raise TimeoutError(f"not everything was sent and struck {PATIENCE:g} s after its time; see driver.log")
        time.sleep(ROUND)
    chaos.finish()
    if driver.returncode:
        raise RuntimeError(f"the driver ended with {driver.returncode}; see driver.log")
    return sorted(found)


def settle(fleet: Fleet) -> None:
    """Until all has ended, or nothing moves any more."""
    began = moved = time.monotonic()
    seen: tuple[int, ...] = ()
    while reading.open_instances() or reading.at_work():
        fleet.keep()
        if (now := reading.progress()) != seen:
            seen, moved = now, time.monotonic()
        if time.monotonic() - moved > STILL or time.monotonic() - began > PATIENCE:
            return
        time.sleep(0.2)


def left_over(fleet: Fleet, broker: Any, books: Books) -> list[ledger.Line]:
    """Send the messages of rows once more, evenly picked, let all that is in the queues run, and see what bodies do."""
    deadline = time.monotonic() + PATIENCE
    transport, now = runtime.current().transport, runtime.current().clock.now()
    steps = [replace(dispatch_of(row), due_at=None) for row in StepResult.objects.filter(kind__in=RUNS)]
    sends: list[Callable[[], bool]] = [lambda one=one: transport.dispatch([one], now) == 1 for one in steps]
    for pk, queue in WorkflowInstance.objects.values_list("pk", "queue"):
        sends.append(lambda pk=pk, queue=queue: transport.advance(pk, queue))
    for send in sends[:: max(1, len(sends) // MESSAGES)]:
        while not send() and time.monotonic() < deadline:
            time.sleep(0.2)
    while broker.messages() and time.monotonic() < deadline:
        fleet.keep()
        time.sleep(0.2)
    for _ in range(TICKS):
        last = EngineHeartbeat.objects.values_list("last_tick_at", flat=True).get(pk=1)
        while EngineHeartbeat.objects.values_list("last_tick_at", flat=True).get(pk=1) == last:
            if time.monotonic() > deadline:
                break
            time.sleep(0.05)
    return ledger.lines(ledger.folder() / "ledger")[len(books.lines) :]
