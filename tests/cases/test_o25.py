"""O-25: parallel branches are known by their positions, not by who finishes first; every replay sees the same."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from django_app.models import StepResult, WorkflowInstance
from durable_celery import Workflow, gather, step, workflow
from durable_celery.core.journal import CHILD
from tests.core.driver import Driver
from tests.effects import effects
from tests.processes import Worker, eventually
from tests.project.testapp.case_children import branching
from tests.pump import Pump

SHUFFLES, REPLAYS, OVER_A_DATABASE = 200, 50, 10


@step(name="o25.work")
def work(branch: str, index: int) -> str:
    return f"{branch}{index}"


@workflow(name="o25.branch")
def branch(name: str) -> Workflow[list[str]]:
    first = yield from work(name, 0)
    second = yield from work(name, 1)
    return [first, second]


@workflow(name="o25.parent")
def parent() -> Workflow[list[list[str]]]:
    found = yield from gather(branch("p"), branch("q"))
    again = yield from work("after", 0)
    return [*found, [again]]


RESULT = [["p0", "p1"], ["q0", "q1"], ["after0"]]
IDS = {
    "parent": [("1", "gather", ""), ("1.0", "child", "o25.branch"), ("1.1", "child", "o25.branch"),
               ("2", "step", "o25.work")],
    "p": [("1", "step", "o25.work"), ("2", "step", "o25.work")],
    "q": [("1", "step", "o25.work"), ("2", "step", "o25.work")],
}  # fmt: skip


class Family:
    """The parent and its two children in memory; whoever has something to do is drawn."""

    def __init__(self, dice: random.Random) -> None:
        self.dice = dice
        self.runs = {"parent": Driver(parent.body), "p": Driver(branch.body, "p"), "q": Driver(branch.body, "q")}
        self.places = {"p": "1.0", "q": "1.1"}

    def play(self) -> None:
        while self.runs["parent"].open:
            self.dice.choice(self.moves())()

    def moves(self) -> list[Callable[[], Any]]:
        moves: list[Callable[[], Any]] = []
        for name, run in self.runs.items():
            if not run.open or (name != "parent" and not self.asked_for(name)):
                continue
            if not run.turns or run.has_news():
                moves.append(partial(self.turn, name))
            moves += [partial(self.end, name, position) for position in run.open_steps()]
        return moves

    def asked_for(self, name: str) -> bool:
        return self.places[name] in self.runs["parent"].entries

    def turn(self, name: str) -> None:
        run = self.runs[name]
        run.turn()
        assert run.state != "BLOCKED", run.error
        if not run.open and name != "parent":
            self.runs["parent"].succeed(self.places[name], run.value)

    def end(self, name: str, position: str) -> None:
        branch_name = "after" if name == "parent" else name
        index = 0 if name == "parent" else int(position) - 1
        self.runs[name].succeed(position, f"{branch_name}{index}")

    def ids(self) -> dict[str, list[tuple[str, str, str]]]:
        rows = {name: list(run.entries.values()) for name, run in self.runs.items()}
        return {name: [(row.position, row.kind, row.name) for row in rows[name]] for name in rows}


def test_o25_every_order_of_completion_gives_the_same_ids_and_results_in_yield_order() -> None:
    finished_first = set()
    for seed in range(SHUFFLES):
        family = Family(random.Random(seed))
        family.play()
        mine = family.runs["parent"]
        assert mine.state == "COMPLETED"
        assert mine.value == RESULT
        assert family.ids() == IDS
        ended = sorted((row.finished_at, row.position) for row in mine.entries.values() if row.kind == CHILD)
        finished_first.add(ended[0][1])
    assert finished_first == {"1.0", "1.1"}


def test_o25_fifty_replays_of_one_journal_append_nothing_and_give_the_same() -> None:
    family = Family(random.Random(25))
    family.play()
    for run in family.runs.values():
        for _ in range(REPLAYS):
            decision = run.decide(recorded_only=True)
            assert (decision.state, decision.value) == ("COMPLETED", run.value)
            assert (decision.openings, decision.closings, decision.withdrawn) == ((), (), ())


@pytest.mark.parametrize("seed", range(OVER_A_DATABASE))
def test_o25_whole_families_over_a_database(pump: Pump, seed: int) -> None:
    dice = random.Random(seed)
    pump.choose = lambda ready: dice.randrange(len(ready))
    pump.kill_at(dice.choice(["turn.before_commit", "record.before", "record.after", "turn.after_commit"]), 3)
    handle = parent.start()
    pump.finish()
    assert handle.result(timeout=0) == RESULT
    assert ids_of(handle.id) == IDS["parent"]
    for child in WorkflowInstance.objects.filter(parent_id=handle.id):
        assert ids_of(child.pk) == IDS["p"]


def ids_of(instance_id: Any) -> list[tuple[str, str, str]]:
    rows = StepResult.objects.filter(instance_id=instance_id).order_by("position")
    return list(rows.values_list("position", "kind", "name"))


@pytest.mark.kill
@pytest.mark.prefork
@pytest.mark.django_db(transaction=True)
def test_o25_a_worker_is_killed_in_the_middle(start_worker: Callable[..., Worker], tmp_path: Path) -> None:
    """p1 is slow in its first step, p2 in its second; the worker dies while both run."""
    env = {"TEST_DURABLE_CELERY": '{"TICK": 0.2, "LEASE": 2}'}
    handle = branching.start("o25", str(tmp_path))
    worker = start_worker(env=env)
    running = StepResult.objects.filter(kind="step", state="RUNNING")
    eventually(lambda: running.count() == 2 and done("p2 step 0"), "both branches in their slow steps")
    before = journal()
    worker.kill()
    for gate in ("two", "one"):
        (tmp_path / gate).touch()
    start_worker(env=env)
    assert handle.result(timeout=60) == [["p1 step 0", "p1 step 1"], ["p2 step 0", "p2 step 1"]]
    after = journal()
    assert before.items() <= after.items()
    assert len(after) == 7
    assert effects("o25")["p2 step 0"] == 1
    assert effects("o25")["p1 step 1"] == 1


def done(what: str) -> bool:
    return effects("o25").get(what) == 1 and StepResult.objects.filter(kind="step", state="SUCCEEDED").count() == 1


def journal() -> dict[tuple[Any, str], tuple[str, str]]:
    """What stands at each position of each instance."""
    rows = StepResult.objects.values_list("instance_id", "position", "kind", "name")
    return {(instance_id, position): (kind, name) for instance_id, position, kind, name in rows}
