from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from demo.chaos import Chaos, Kill
from demo.processes import Process, children_of

PARENT_OF_TWO = (
    "import subprocess, sys, time\n"
    "sleep = [sys.executable, '-c', 'import time; time.sleep(600)']\n"
    "children = [subprocess.Popen(sleep), subprocess.Popen(sleep)]\n"
    "time.sleep(600)\n"
)


class FakeProcess:
    def __init__(self, log: list[str], name: str) -> None:
        self._log = log
        self._name = name

    def start(self) -> None:
        self._log.append(f"{self._name} started")

    def kill(self, when: Callable[[], bool] = lambda: True) -> bool:
        return self._note("killed", when)

    def kill_child(self, when: Callable[[], bool]) -> bool:
        return self._note("child killed", when)

    def _note(self, what: str, when: Callable[[], bool]) -> bool:
        if killed := when():
            self._log.append(f"{self._name} {what}")
        return killed


@pytest.fixture
def parent(tmp_path: Path) -> Iterator[Process]:
    process = Process("parent", (sys.executable, "-c", PARENT_OF_TWO), tmp_path / "log")
    process.start()
    until(lambda: len(children_of(process.pid)) == 2)
    yield process
    process.stop(patience=1)


def until(condition: Callable[[], bool], seconds: float = 20) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come true"
        time.sleep(0.01)


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return " Z" not in Path(f"/proc/{pid}/stat").read_text() if Path("/proc").exists() else True


def test_a_killed_process_takes_its_children_along(parent: Process) -> None:
    pids = [parent.pid, *children_of(parent.pid)]
    assert parent.kill()
    until(lambda: not any(alive(pid) for pid in pids))
    assert parent.died() is None


def test_one_child_is_killed_and_the_rest_goes_on(parent: Process) -> None:
    first, second = children_of(parent.pid)
    assert parent.kill_child(when=lambda: True)
    until(lambda: not alive(first))
    assert alive(second)
    assert alive(parent.pid)


def test_nothing_is_killed_when_the_moment_is_wrong(parent: Process) -> None:
    pids = [parent.pid, *children_of(parent.pid)]
    assert not parent.kill(when=lambda: False)
    assert not parent.kill_child(when=lambda: False)
    assert all(alive(pid) for pid in pids)


def test_a_kill_waits_for_its_share_and_for_a_running_step() -> None:
    log: list[str] = []
    running: set[object] = set()
    chaos = Chaos(FakeProcess(log, "worker"), FakeProcess(log, "Beat"), lambda: set(running), (Kill(0.5, "worker"),))
    assert not chaos.go_on(now=0, closed_share=0.4)
    assert chaos.go_on(now=1, closed_share=0.5)
    assert log == []
    running.add(("step", 1))
    assert not chaos.go_on(now=2, closed_share=0.5)
    assert log == ["worker killed"]


def test_what_was_killed_is_started_again_before_the_next_kill() -> None:
    log: list[str] = []
    plan = (Kill(0, "Beat", down=3), Kill(0, "Beat", down=0))
    chaos = Chaos(FakeProcess(log, "worker"), FakeProcess(log, "Beat"), set, plan)
    for now in (0, 2):
        chaos.go_on(now, closed_share=1)
    assert log == ["Beat killed"]
    chaos.go_on(3, closed_share=1)
    assert log == ["Beat killed", "Beat started", "Beat killed"]
    assert not chaos.finished
    chaos.go_on(4, closed_share=1)
    assert chaos.finished
    assert chaos.kills == {"Beat": 2}


def test_a_step_of_a_dead_worker_is_not_taken_for_a_running_one() -> None:
    log: list[str] = []
    running: set[object] = {("step", 1)}
    plan = (Kill(0, "worker"), Kill(0, "worker"))
    chaos = Chaos(FakeProcess(log, "worker"), FakeProcess(log, "Beat"), lambda: set(running), plan)
    chaos.go_on(0, closed_share=1)
    assert chaos.go_on(1, closed_share=1)
    running.add(("step", 2))
    chaos.go_on(2, closed_share=1)
    assert log == ["worker killed", "worker started", "worker killed"]


def test_a_pool_child_is_killed_only_while_both_run_steps() -> None:
    log: list[str] = []
    running: set[object] = {("step", 1)}
    chaos = Chaos(FakeProcess(log, "worker"), FakeProcess(log, "Beat"), lambda: set(running), (Kill(0, "pool child"),))
    assert chaos.go_on(0, closed_share=1)
    running.add(("other step", 1))
    chaos.go_on(1, closed_share=1)
    assert log == ["worker child killed"]
