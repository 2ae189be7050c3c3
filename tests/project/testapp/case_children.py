"""Families of the cases about children, for workers that run as processes."""

from __future__ import annotations

from pathlib import Path

from durable_celery import Workflow, gather, workflow
from tests.project.testapp.steps import linger, say


@workflow
def packing(run: str, name: str) -> Workflow[str]:
    return (yield from say(run, name))


@workflow
def ordering(run: str) -> Workflow[str]:
    """The first thing it does is to wait for a child."""
    packed = yield from packing(run, "packed")
    return f"{packed} and sent"


@workflow
def branch(run: str, name: str, gate: str, first_waits: bool) -> Workflow[list[str]]:
    """Two steps, of which one runs until the gate is open."""
    found: list[str] = []
    for index in range(2):
        what = f"{name} step {index}"
        waits = (index == 0) is first_waits
        found.append((yield from linger(run, what, gate if waits else __file__)))
    return found


@workflow
def branching(run: str, folder: str) -> Workflow[list[list[str]]]:
    one, two = str(Path(folder, "one")), str(Path(folder, "two"))
    return list((yield from gather(branch(run, "p1", one, True), branch(run, "p2", two, False))))
