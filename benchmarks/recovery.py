"""How long a step waits after the process that ran it was killed: on each broker, so many kills of each kind.

    python benchmarks/recovery.py [--kills 20] [--broker redis --broker rabbitmq] [--output benchmarks/recovery.txt]
    python benchmarks/recovery.py --in-flight 200 --output benchmarks/recovery_in_flight.txt

A step is running in a worker; SIGKILL; the clock stops when its body runs again. With --in-flight so many other
workflows are under way in the same workers, each a step and ten seconds' sleep in turn: the step then waits its turn
among theirs, and only how often it runs is judged, not how soon.

- *a pool child*: the process of the pool that runs it, from the kill
- *a worker, restarted*: main process and pool at once; another worker is started on the same host, from its being ready
- *a worker, taken over*: the same while another worker runs that cannot see the dead process, as on another host; from
  the kill: the lease must run out first

Prints a table, and exits 1 where a bound is broken or a step did not run exactly twice. Services are found or started
as for the tests (tests/project/surroundings.py). `make nightly` keeps the last output of both.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from durable_celery.client import WorkflowHandle
    from tests.processes import Worker

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

BROKERS = ("redis", "rabbitmq")
AT_ONCE = 1.0  # seconds
BEYOND_LEASE = 2.0
PATIENCE = 60.0  # seconds for anything a run waits for


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One line of the table: what was killed, and after how many seconds the step ran again, each time."""

    broker: str
    killed: str
    bound: float
    seconds: list[float]

    def at(self, share: float) -> float:
        ordered = sorted(self.seconds)
        return ordered[math.ceil(share * len(ordered)) - 1]

    @property
    def holds(self) -> bool:
        return max(self.seconds) < self.bound

    def line(self) -> str:
        figures = (self.at(0.5), self.at(0.95), max(self.seconds), self.bound)
        return (
            f"{self.broker:<10}{self.killed:<24}{len(self.seconds):>6}"
            + "".join(f"{figure:>8.2f}" for figure in figures)
            + ("" if self.holds else "   BROKEN")
        )


HEADER = f"{'broker':<10}{'SIGKILL of':<24}{'kills':>6}{'p50':>8}{'p95':>8}{'max':>8}{'bound':>8}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=20, help="of each kind on each broker")
    parser.add_argument("--broker", action="append", choices=BROKERS, help=f"instead of {' and '.join(BROKERS)}")
    parser.add_argument("--database", default="postgres", choices=("postgres", "mariadb"))
    parser.add_argument("--lease", type=float, default=10, help="seconds; 10 is the default of projects")
    parser.add_argument("--in-flight", type=int, default=0, help="other workflows that are under way meanwhile")
    parser.add_argument("--output", type=Path, help="keep what is printed in this file too")
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.measure:
        return measure(chosen.measure, chosen.kills, chosen.lease, chosen.in_flight)
    printed: list[str] = []
    say(f"Seconds until a step runs again; {chosen.database}, LEASE {chosen.lease:g} s, the rest by default.", printed)
    if chosen.in_flight:
        say(f"{chosen.in_flight} other workflows in flight, each a step and 10 s of sleep in turn; no bound.", printed)
    say(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} at the start, niceness {os.nice(0)}.\n", printed)
    say(HEADER, printed)
    statuses = [measure_apart(broker, chosen, printed) for broker in chosen.broker or BROKERS]
    if chosen.output:
        chosen.output.write_text("\n".join(printed) + "\n")
    return max(statuses)


def say(line: str, printed: list[str]) -> None:
    printed.append(line)
    print(line, flush=True)


def measure_apart(broker: str, chosen: argparse.Namespace, printed: list[str]) -> int:
    """Each broker in a process of its own: settings are read once."""
    env = {**os.environ, "TEST_DB": chosen.database, "TEST_BROKER": broker}
    env["DJANGO_SETTINGS_MODULE"] = "tests.project.settings"
    options = ["--measure", broker, "--kills", str(chosen.kills), "--lease", str(chosen.lease)]
    options += ["--in-flight", str(chosen.in_flight)]
    command = [sys.executable, __file__, *options]
    with subprocess.Popen(command, cwd=ROOT, env=env, stdout=subprocess.PIPE, text=True) as process:
        for line in process.stdout or ():
            say(line.rstrip("\n"), printed)
    return process.returncode


def measure(broker: str, kills: int, lease: float, in_flight: int) -> int:
    with project() as folder:
        bench = Bench(folder, lease=lease, in_flight=in_flight)
        kinds: tuple[tuple[str, float, Callable[[int], Iterator[float]]], ...] = (
            ("a pool child", AT_ONCE, bench.kill_children),
            ("a worker, restarted", AT_ONCE, bench.restart_workers),
            ("a worker, taken over", lease + BEYOND_LEASE, bench.take_over),
        )
        if in_flight:
            kinds = tuple((killed, math.inf, kill) for killed, _, kill in kinds)
        rows = []
        for killed, bound, kill in kinds:
            try:
                rows.append(Row(broker=broker, killed=killed, bound=bound, seconds=list(kill(kills))))
            finally:
                bench.clear()
            print(rows[-1].line(), flush=True)
    return 0 if all(row.holds for row in rows) else 1


@contextmanager
def project() -> Iterator[Path]:
    """The tests' Django project on a database of its own; a folder for logs and gates."""
    import django

    from tests.project import surroundings

    surroundings.prepare()
    django.setup()
    from django.db import connection

    connection.creation.create_test_db(verbosity=0, autoclobber=True)
    try:
        with tempfile.TemporaryDirectory(prefix="durable-recovery-") as folder:
            yield Path(folder)
    finally:
        connection.creation.destroy_test_db(connection.settings_dict["NAME"], verbosity=0)


class Bench:
    """Workers and the steps that run in them."""

    def __init__(self, folder: Path, *, lease: float, in_flight: int) -> None:
        self.folder = folder
        self.in_flight = in_flight
        self.env = {"TEST_DURABLE_CELERY": json.dumps({"LEASE": lease})}
        self.workers: list[Worker] = []

    def kill_children(self, kills: int) -> Iterator[float]:
        worker = self.new_worker()
        for _ in range(kills):
            held = self.held_by(worker)
            worker.kill_child(held.child())
            yield held.seconds_since(time.time())

    def restart_workers(self, kills: int) -> Iterator[float]:
        for _ in range(kills):
            worker = self.new_worker()
            held = self.held_by(worker)
            worker.kill()
            successor = self.new_worker()
            yield max(0.0, held.seconds_since(ready_at(successor)))
            successor.kill()

    def take_over(self, kills: int) -> Iterator[float]:
        survivor = self.new_worker()
        for _ in range(kills):
            victim = self.new_worker()
            held = self.held_by(victim, not_by=survivor)
            held.lease_of_another_host()
            killed_at = time.time()
            victim.kill()
            yield held.seconds_since(killed_at)

    def new_worker(self) -> Worker:
        from tests.processes import start_worker

        name = f"worker-{uuid.uuid4().hex[:8]}"  # Celery on RabbitMQ refuses a second worker of one name
        worker = start_worker(self.folder / f"{name}.log", arguments=["-n", f"{name}@%h"], env=self.env)
        self.workers.append(worker)
        worker.wait_until_ready()
        self.let_fly()
        return worker

    def let_fly(self) -> None:
        """Start the workflows in flight, once, and see all of them under way."""
        from django_app.models import WorkflowInstance
        from tests.processes import eventually
        from tests.project.testapp.workflows import flying

        flights = WorkflowInstance.objects.filter(name=flying.name)
        if self.in_flight and not flights.exists():
            flying.start_many([(f"flight {number}", 10.0) for number in range(self.in_flight)])
            under_way = flights.filter(turn__gt=1)
            eventually(lambda: under_way.count() == self.in_flight, "all workflows in flight", seconds=5 * PATIENCE)

    def held_by(self, worker: Worker, *, not_by: Worker | None = None) -> Held:
        """A step that runs in this worker; those that another took are let go."""
        children = set(not_by.children()) if not_by else set()
        while True:
            held = Held(self.folder)
            if held.child() not in children:
                return held
            held.let_go()

    def clear(self) -> None:
        for worker in self.workers:
            worker.clear()
        self.workers.clear()


class Held:
    """A workflow whose step runs until its gate opens."""

    def __init__(self, folder: Path) -> None:
        from tests.project.testapp.workflows import lingering

        self.run = uuid.uuid4().hex
        self.gate = folder / self.run
        self.handle: WorkflowHandle[str] = lingering.start(self.run, str(self.gate))
        self._wait_for_executions(1)

    def child(self) -> int:
        """The process that runs it."""
        from django_app.models import StepResult

        return int(StepResult.objects.values_list("pid", flat=True).get(instance_id=self.handle.id, state="RUNNING"))

    def lease_of_another_host(self) -> None:
        """Nobody here can tell any more whether the process lives."""
        from django_app.models import StepResult, WorkerLease

        lease = StepResult.objects.values_list("lease_id", flat=True).get(instance_id=self.handle.id)
        WorkerLease.objects.filter(pk=lease).update(boot_id="another host")

    def seconds_since(self, begin: float) -> float:
        """When its body ran again, seconds after ``begin``; lets it end, and sees that it ran twice and no more."""
        _, again = self._wait_for_executions(2)
        self.let_go()
        executions = self._executions()
        if len(executions) != 2:
            raise SystemExit(f"the step of instance {self.handle.id} ran {len(executions)} times, expected 2")
        return again.timestamp() - begin

    def let_go(self) -> None:
        self.gate.touch()
        self.handle.result(timeout=PATIENCE)

    def _wait_for_executions(self, count: int) -> list[datetime]:
        deadline = time.monotonic() + PATIENCE
        while len(found := self._executions()) < count:
            if time.monotonic() > deadline:
                raise SystemExit(f"instance {self.handle.id} after {PATIENCE:g} s: {self.handle.waiting_for}")
            time.sleep(0.01)
        return found

    def _executions(self) -> list[datetime]:
        from tests.project.testapp.models import Effect

        effects = Effect.objects.filter(run=self.run, what="lingering").order_by("at")
        return list(effects.values_list("at", flat=True))


def ready_at(worker: Worker) -> float:
    """When the worker said that it is ready, by the clock of its log."""
    (line,) = [line for line in worker.text().splitlines() if line.endswith(" ready.")]
    return datetime.strptime(line[:23], "%Y-%m-%d %H:%M:%S,%f").timestamp()  # noqa: DTZ007 - the log has local time


if __name__ == "__main__":
    sys.exit(main())
