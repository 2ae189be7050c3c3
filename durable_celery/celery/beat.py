"""The tick and the purge as ordinary Beat entries, which people see and may disable."""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import Any

from durable_celery import runtime
from durable_celery.celery.quiet import PURGE, TICK, hush_the_tick
from durable_celery.celery.slots import mark_slots
from durable_celery.errors import NotConfigured

EVERY = timedelta(hours=1)  # from purge to purge

logger = logging.getLogger(__name__)


def on_beat_init(*, sender: Any, **_: Any) -> None:
    """Put the entries in once Beat has read its schedule: ``app.conf.beat_schedule = ...`` would wipe an earlier one.

    Each only if there is none: an entry somebody changed or disabled stays as it is.
    """
    hush_the_tick()
    try:
        settings = runtime.current().settings
    except NotConfigured as error:
        logger.critical("Beat cannot send the tick of workflows: %s", error)
        return
    scheduler = sender.scheduler
    try:
        mark_slots(scheduler)
        wanted = {TICK: entry(TICK, settings.tick)}
        if settings.retention is not None:
            wanted[PURGE] = entry(PURGE, EVERY)
        missing = {name: one for name, one in wanted.items() if not _has(scheduler, name)}
        if missing:
            scheduler.update_from_dict(missing)
    except Exception:
        logger.exception(
            "Beat could not take the entry %r; workers tick by themselves unless TICK_IN_WORKER is off", TICK
        )


def entry(task: str, every: timedelta) -> dict[str, Any]:
    """The entry for both schedulers: whole seconds, and a message that nobody took in its time expires."""
    seconds = max(1, round(every.total_seconds()))
    return {
        "task": task,
        "schedule": timedelta(seconds=seconds),
        "options": {"expires": seconds, "expire_seconds": seconds},
    }


def _has(scheduler: Any, task: str) -> bool:
    if task in scheduler.schedule:
        return True
    model = getattr(scheduler, "Model", None)  # django_celery_beat: its schedule leaves disabled entries out
    return model is not None and model._default_manager.filter(task=task).exists()
