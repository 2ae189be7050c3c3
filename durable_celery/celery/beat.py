"""The tick as an ordinary Beat entry, which people see and may disable."""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import Any

from durable_celery import runtime
from durable_celery.celery.quiet import TICK, hush_the_tick
from durable_celery.celery.slots import mark_slots
from durable_celery.errors import NotConfigured

logger = logging.getLogger(__name__)


def on_beat_init(*, sender: Any, **_: Any) -> None:
    """Put the entry in once Beat has read its schedule: ``app.conf.beat_schedule = ...`` would wipe an earlier one.

    Only if there is none: an entry somebody changed or disabled stays as it is.
    """
    hush_the_tick()
    try:
        tick = runtime.current().settings.tick
    except NotConfigured as error:
        logger.critical("Beat cannot send the tick of workflows: %s", error)
        return
    scheduler = sender.scheduler
    try:
        mark_slots(scheduler)
        if not _has_tick(scheduler):
            scheduler.update_from_dict({TICK: entry(tick)})
    except Exception:
        logger.exception(
            "Beat could not take the entry %r; workers tick by themselves unless TICK_IN_WORKER is off", TICK
        )


def entry(tick: timedelta) -> dict[str, Any]:
    """The entry for both schedulers: whole seconds, and a tick that nobody took in its time expires."""
    seconds = max(1, round(tick.total_seconds()))
    return {
        "task": TICK,
        "schedule": timedelta(seconds=seconds),
        "options": {"expires": seconds, "expire_seconds": seconds},
    }


def _has_tick(scheduler: Any) -> bool:
    if TICK in scheduler.schedule:
        return True
    model = getattr(scheduler, "Model", None)  # django_celery_beat: its schedule leaves disabled entries out
    return model is not None and model._default_manager.filter(task=TICK).exists()
