"""An atomic step under random kills: what its bodies did exists exactly as often as its results.

    TEST_DB=postgres TEST_BROKER=redis python -m benchmarks.atomic_kills --kills 200

Real SIGKILLs, of two kinds: pool processes kill themselves by dice at the engine's fault points (before and after the
body, the commit, the claim, the turn ...), and from outside a pool process, or now and then the whole worker, is killed
at a random moment. The variables are those of the tests (tests/project/surroundings.py).
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import time
import uuid
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.processes import Worker

SETTINGS = {"LEASE": 3, "TICK": 0.2, "MAX_DEATHS": 10_000, "MAX_EXPIRIES": 10_000}
STEPS = 20  # of one workflow
SLEEP = 0.04  # seconds at most between the two writes of a body
DICE = 0.02
WHOLE_WORKER = 0.08  # of the kills from outside
PATIENCE = 120  # seconds for what is left at the end


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What was killed where, and what came of the steps. ``torn`` are steps whose effects are not those of a result."""

    kills: Counter[str]
    attempts: int
    deaths: int
    results: int
    effects: int
    torn: list[str]
    unfinished: list[str]

    def lines(self) -> list[str]:
        from tests.project.testapp.case_atomic import ENTRIES

        verdict = "effects = results" if self.effects == ENTRIES * self.results and not self.torn else "TORN"
        return [
            f"{self.kills.total()} kills:",
            *(f"  {count:5} {where}" for where, count in sorted(self.kills.items())),
            f"{self.attempts} attempts of {self.results} steps, {self.deaths} died",
            f"{self.results} results, {self.effects} effects, {ENTRIES} to each: {verdict}",
            *(f"  torn: {what}" for what in self.torn),
            *(f"  unfinished: {what}" for what in self.unfinished),
        ]


def kill_and_count(kills: int, folder: Path, *, seed: int, gap: float = 0.5, odds: float = DICE) -> Report:
    """Keep a worker busy with atomic steps until so many kills have struck; let the rest finish; count."""
    dice = random.Random(seed)
    marks = folder / "marks"
    marks.mkdir()
    env = {"TEST_DURABLE_CELERY": json.dumps(SETTINGS), "TEST_DICE": f"{marks}:{odds}"}
    run = f"atomic-{uuid.uuid4().hex[:12]}"
    struck: Counter[str] = Counter()
    worker = _worker(folder, 0, env)
    try:
        while struck.total() + _count(marks).total() < kills:
            _keep_busy(run)
            time.sleep(dice.uniform(0, 2 * gap))
            worker = _strike(worker, dice, struck, folder, env)
        worker.kill()
        struck["the worker, at the end"] += 1
        worker = _worker(folder, struck.total(), {**env, "TEST_DICE": f"{marks}:0"})
        _wait_for_the_rest(run)
    finally:
        worker.clear()
    return _report(run, struck + _count(marks))


def _worker(folder: Path, number: int, env: dict[str, str]) -> Worker:
    """Under a name of its own: RabbitMQ holds the queue of a name until it notices that the one before is dead."""
    from tests.processes import start_worker

    log = folder / f"worker-{number}.log"
    return start_worker(log, env=env, arguments=("-n", f"kills-{number}@%h")).wait_until_ready()


def _keep_busy(run: str) -> None:
    from django_app.models import WorkflowInstance
    from tests.project.testapp.case_atomic import transfers

    while WorkflowInstance.objects.open().filter(name=transfers.name).count() < 4:
        transfers.start(run, STEPS, SLEEP)


def _strike(worker: Worker, dice: random.Random, struck: Counter[str], folder: Path, env: dict[str, str]) -> Worker:
    if dice.random() < WHOLE_WORKER:
        worker.kill()
        struck["the worker, at a random moment"] += 1
        return _worker(folder, struck.total(), env)
    victim = _at_work(worker)
    time.sleep(dice.uniform(0, 2 * SLEEP))
    if victim is not None:
        worker.kill_child(victim)
        struck["a pool process, soon after a claim"] += 1
    return worker


def _at_work(worker: Worker) -> int | None:
    """A pool process that has claimed a step a moment ago."""
    from django_app.models import StepResult

    deadline = time.monotonic() + 3
    while time.monotonic() < deadline:
        claimed = set(StepResult.objects.filter(state="RUNNING").values_list("pid", flat=True))
        working = [pid for pid in worker.children() if pid in claimed]
        if working:
            return working[0]
        time.sleep(0.005)
    return None


def _count(marks: Path) -> Counter[str]:
    return Counter(f"a pool process, at {mark.name.rpartition('-')[0]}" for mark in marks.iterdir())


def _wait_for_the_rest(run: str) -> None:
    from django_app.models import WorkflowInstance
    from tests.project.testapp.case_atomic import transfers

    deadline = time.monotonic() + PATIENCE
    while WorkflowInstance.objects.open().filter(name=transfers.name).exists() and time.monotonic() < deadline:
        time.sleep(0.2)


def _report(run: str, kills: Counter[str]) -> Report:
    from django.db.models import Sum

    from django_app.models import StepResult, WorkflowInstance
    from durable_celery import get_handle
    from durable_celery.core.identity import idempotency_key
    from tests.project.testapp.case_atomic import ENTRIES, transfer, transfers
    from tests.project.testapp.models import Effect

    steps = StepResult.objects.filter(name=transfer.name)
    effects = Counter(Effect.objects.filter(run=run).values_list("key", flat=True))
    torn = []
    for instance_id, position, state in steps.values_list("instance_id", "position", "state"):
        found = effects.pop(idempotency_key(instance_id, position), 0)
        if found != (ENTRIES if state == "SUCCEEDED" else 0):
            torn.append(f"{instance_id} {position} is {state} with {found} effects")
    torn += [f"{count} effects of no step, key {key}" for key, count in effects.items()]
    sums = steps.aggregate(attempts=Sum("attempt"), deaths=Sum("deaths"))
    unfinished = [
        f"{row.pk} is {row.state}: {get_handle(row.pk).waiting_for}"
        for row in WorkflowInstance.objects.filter(name=transfers.name).exclude(state="COMPLETED")
    ]
    return Report(
        kills=kills,
        attempts=sums["attempts"] or 0,
        deaths=sums["deaths"] or 0,
        results=steps.filter(state="SUCCEEDED").count(),
        effects=Effect.objects.filter(run=run).count(),
        torn=torn,
        unfinished=unfinished,
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    options = parser.parse_args()
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.project.settings")
    import django

    from tests.project import surroundings

    surroundings.prepare()
    django.setup()
    from django.db import connection

    connection.creation.create_test_db(verbosity=0, autoclobber=True)
    try:
        folder = surroundings.FOLDER / "kills"
        folder.mkdir()
        began = time.monotonic()
        report = kill_and_count(options.kills, folder, seed=options.seed)
        took = time.monotonic() - began
        print(f"{surroundings.DATABASE}, {surroundings.BROKER}, seed {options.seed}, {took:.0f} s")
        print("\n".join(report.lines()))
        return 1 if report.torn or report.unfinished else 0
    finally:
        connection.creation.destroy_test_db(connection.settings_dict["NAME"], verbosity=0)


if __name__ == "__main__":
    sys.exit(main())
