"""What other packages see of steps. TEST_NEIGHBOURS=folder puts them in place in each process of a worker.

They append JSON lines: Sentry, with a transport of its own, to `sentry`; Celery's signals to `signals`; the hooks of
the Task class to `hooks`.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from celery import Task, signals

from durable_celery import NonRetryable, RetryPolicy, StepFailed, Workflow, current_step, step, workflow
from tests.project.testapp.steps import note, say

THRICE = RetryPolicy(initial_interval=0.1, backoff_coefficient=1.0, maximum_attempts=3, jitter=False)
FOLDER = os.environ.get("TEST_NEIGHBOURS", "")


class CardDeclined(Exception):
    pass


@step(retry=THRICE)
def charge(run: str, failures: int) -> int:
    """Fails on its first `failures` attempts."""
    note(run, "charge")
    if current_step().attempt <= failures:
        raise CardDeclined(f"attempt {current_step().attempt}")
    return current_step().attempt


@step(atomic=True, retry=THRICE)
def book(run: str, failures: int) -> int:
    note(run, "book")
    if current_step().attempt <= failures:
        raise CardDeclined(f"attempt {current_step().attempt}")
    return current_step().attempt


@step(retry=THRICE)
def refuse(run: str) -> None:
    raise NonRetryable(CardDeclined("for ever"))


@step(retry=THRICE, start_to_close_timeout=0.5)
def dawdle(run: str) -> None:
    import time

    time.sleep(20)


@workflow(name="case_neighbours.buying", fails_on=StepFailed)
def buying(run: str, name: str, *args: Any) -> Workflow[Any]:
    yield from say(run, "hello")
    steps: dict[str, Any] = {"charge": charge, "book": book, "refuse": refuse, "dawdle": dawdle}
    return (yield from steps[name](run, *args))


def append(file: str, **line: Any) -> None:
    with Path(FOLDER, file).open("a") as lines:
        lines.write(json.dumps({"process": os.getpid(), **line}, default=repr) + "\n")


def lines_of(folder: Path, file: str) -> list[dict[str, Any]]:
    path = folder / file
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def _put_in_place() -> None:
    _sentry()
    for name in ("task_prerun", "task_postrun", "task_success", "task_retry", "task_failure", "task_rejected"):
        getattr(signals, name).connect(_heard(name), weak=False)
    for name in ("before_start", "on_success", "on_retry", "on_failure", "after_return"):
        setattr(Task, name, _hook(name))


def _sentry() -> None:
    import sentry_sdk
    from sentry_sdk.integrations.celery import CeleryIntegration
    from sentry_sdk.transport import Transport

    class ToFile(Transport):
        def capture_envelope(self, envelope: Any) -> None:
            for item in envelope.items:
                if item.type == "event":
                    append("sentry", event=item.payload.json)

    sentry_sdk.init(
        dsn="https://key@sentry.invalid/1", transport=ToFile, integrations=[CeleryIntegration()], traces_sample_rate=1.0
    )


def _heard(name: str) -> Any:
    def hear(sender: Any = None, task_id: str = "", request: Any = None, **told: Any) -> None:
        task_id = task_id or getattr(request, "id", "") or getattr(getattr(sender, "request", None), "id", "")
        said = {key: told[key] for key in ("state", "retval", "result", "reason", "exception") if key in told}
        append("signals", signal=name, task=getattr(sender, "name", ""), id=task_id, **said)

    return hear


def _hook(name: str) -> Any:
    def hook(task: Any, *args: Any) -> None:
        append("hooks", hook=name, task=task.name, id=task.request.id)

    return hook


if FOLDER:
    _put_in_place()
