"""The language and the time zone of a start, for its turns and attempts."""

from __future__ import annotations

from contextlib import AbstractContextManager
from datetime import datetime, timedelta, tzinfo
from datetime import timezone as fixed

from django.utils import timezone, translation

from durable_celery.surroundings import register_context


def register() -> None:
    """Carry both, from now on."""
    register_context("language", translation.get_language, translation.override)
    register_context("time zone", _time_zone, _override_time_zone)


def _time_zone() -> str | float | None:
    """The zone's key, or its fixed offset in seconds."""
    zone: tzinfo = timezone.get_current_timezone()
    key: str | None = getattr(zone, "key", None)
    if key is not None:
        return key
    offset = zone.utcoffset(datetime.now(fixed.utc))
    return None if offset is None else offset.total_seconds()


def _override_time_zone(zone: str | float) -> AbstractContextManager[None]:
    return timezone.override(zone if isinstance(zone, str) else fixed(timedelta(seconds=zone)))
