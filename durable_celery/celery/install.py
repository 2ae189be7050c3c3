"""Wiring into Celery: called by ``AppConfig.ready()``, it connects signals and registers tasks, and does nothing else.

It looks for no app and asks no database, so it does not matter whether the Celery app is made before or after.
"""

from __future__ import annotations

import logging
from typing import Any

from celery import signals

from durable_celery import sweeps
from durable_celery.celery import filesystem, tasks
from durable_celery.celery import worker as workers
from durable_celery.celery.beat import on_beat_init
from durable_celery.celery.quiet import hush_the_tick
from durable_celery.celery.transport import HEADER

logger = logging.getLogger(__name__)


def install() -> None:
    """Connect everything; again does nothing. Celery keeps receivers weakly unless told otherwise."""
    for signal, receiver in (
        (signals.worker_init, on_worker_init),
        (signals.beat_init, on_beat_init),
        (signals.task_unknown, on_task_unknown),
    ):
        signal.connect(receiver, weak=False, dispatch_uid=f"durable_celery.{receiver.__name__}")
    filesystem.mend()
    tasks.register()


def on_worker_init(*, sender: Any, **_: Any) -> None:
    """Give the worker its bootstep; its blueprint is built after this signal."""
    hush_the_tick()
    sender.app.steps["worker"].add(workers.DurableStep)


def on_task_unknown(*, sender: Any, message: Any, name: str, **_: Any) -> None:
    """A message for a step this worker has no code for. Celery drops it; the row waits for a worker that knows it."""
    header = (message.headers or {}).get(HEADER)
    step_id = header.get("step") if isinstance(header, dict) else None
    if step_id is None:
        return
    logger.error(
        "this worker does not know the step %s. Nothing is lost: the row is left to a worker that does. Does its app "
        "have the module in INSTALLED_APPS, and is its code as new as the sender's?",
        name,
    )
    presence = workers.presence_of(sender.controller)
    if presence is not None:
        presence.run_errand(f"noting that step {name} is unknown", lambda: sweeps.unknown_step(int(step_id)))
