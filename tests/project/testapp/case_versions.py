"""Code that is newer than a worker's: TEST_CODE=old in its environment leaves it out."""

from __future__ import annotations

import os

from durable_celery import Signal, Workflow, patched, step, workflow
from tests.project.testapp.steps import note

NEW = os.environ.get("TEST_CODE") != "old"

approved = Signal("approved", str)

if NEW:

    @step
    def novel(run: str) -> str:
        note(run, "novel")
        return "novel"

    @workflow
    def novelty(run: str) -> Workflow[str]:
        return (yield from novel(run))


@step
def pay_out(run: str) -> str:
    note(run, "paid")
    return "paid"


def _before(run: str) -> Workflow[list[str]]:
    yield from approved.wait(timeout=600)
    return [(yield from pay_out(run))]


def _after(run: str) -> Workflow[list[str]]:
    yield from approved.wait(timeout=600)
    done: list[str] = []
    if patched("novel"):
        done.append((yield from novel(run)))
    done.append((yield from pay_out(run)))
    return done


loan = workflow(name="case_versions.loan")(_after if NEW else _before)
