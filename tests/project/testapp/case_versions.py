"""Code that is newer than a worker's: TEST_CODE=old in its environment leaves it out."""

from __future__ import annotations

import os

from durable_celery import Workflow, step, workflow
from tests.project.testapp.steps import note

NEW = os.environ.get("TEST_CODE") != "old"

if NEW:

    @step
    def novel(run: str) -> str:
        note(run, "novel")
        return "novel"

    @workflow
    def novelty(run: str) -> Workflow[str]:
        return (yield from novel(run))
