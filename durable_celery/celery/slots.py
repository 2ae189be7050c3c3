"""Which occurrence of a schedule a Beat message stands for, so that two Beats, or one started again, start one
instance.

Nothing in Beat's own message says it. So Beat's process, which knows the entry, notes the slot in a header: of an
interval the multiple of its length, of a crontab the minute, in UTC. Whoever takes the message takes the slot by a
guarded UPDATE.
"""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any

from celery.schedules import crontab, schedule

from durable_celery.registry import registry

SLOT = "durable_slot"  # the header
STEPS = 10_000  # minutes looked back for the occurrence of a crontab that Beat sends late
EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


def mark_slots(scheduler: Any) -> None:
    """Have this Beat note the slot on each entry that starts a workflow; a second call does nothing."""
    if getattr(scheduler, "durable_slots", False):
        return
    scheduler.durable_slots = True
    send = scheduler.apply_async

    def apply_async(entry: Any, *args: Any, **kwargs: Any) -> Any:
        if any(name == entry.task for name, _ in registry.workflows):
            entry.options["headers"] = {**(entry.options.get("headers") or {}), SLOT: slot_of(entry, _now())}
        return send(entry, *args, **kwargs)

    scheduler.apply_async = apply_async


def slot_of(entry: Any, now: datetime) -> dict[str, Any]:
    """The header of an entry that is due at ``now``: its name, the slot, and the length of an interval in seconds."""
    found: dict[str, Any] = {"entry": entry.name}
    when: Any = entry.schedule
    if isinstance(when, crontab):
        return {**found, "at": minute_of(when, now).isoformat()}
    if isinstance(when, schedule) and hasattr(when, "run_every"):
        every = when.run_every.total_seconds()
        if every > 0:
            return {**found, "at": multiple_of(every, now).isoformat(), "every": every}
    return {**found, "at": now.replace(microsecond=0).isoformat()}


def multiple_of(seconds: float, now: datetime) -> datetime:
    """The last multiple of an interval at or before ``now``.

    Multiples count from 1970, so every Beat finds the same.
    """
    length = timedelta(seconds=seconds)
    return EPOCH + length * ((now - EPOCH) // length)


def minute_of(when: Any, now: datetime) -> datetime:
    """The last minute at or before ``now`` that the crontab names; ``now``'s own if none is near."""
    first = now.replace(second=0, microsecond=0)
    for back in range(STEPS):
        minute = first - timedelta(minutes=back)
        if _matches(when, minute.astimezone(when.tz)):
            return minute
    return first


def _matches(when: Any, local: datetime) -> bool:
    return (
        local.minute in when.minute
        and local.hour in when.hour
        and local.isoweekday() % 7 in when.day_of_week
        and local.day in when.day_of_month
        and local.month in when.month_of_year
    )


def _now() -> datetime:
    return datetime.now(timezone.utc)
