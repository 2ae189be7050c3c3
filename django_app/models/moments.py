"""Points in time, kept as UTC whatever ``USE_TZ`` and ``TIME_ZONE`` of the project say."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any
from zoneinfo import ZoneInfo

from django.conf import settings
from django.db import models


class MomentField(models.DateTimeField):  # type: ignore[type-arg]
    """A ``DateTimeField`` that takes and gives aware UTC, also where ``USE_TZ`` is False."""

    def get_prep_value(self, value: Any) -> Any:
        """An aware value; a naive one is taken for UTC."""
        value = self.to_python(value)
        if isinstance(value, datetime) and value.tzinfo is None:
            return value.replace(tzinfo=timezone.utc)
        return value

    def get_db_prep_value(self, value: Any, connection: Any, prepared: bool = False) -> Any:
        """What the driver gets."""
        if not prepared:
            value = self.get_prep_value(value)
        if isinstance(value, datetime) and not settings.USE_TZ and connection.vendor != "postgresql":
            # Without USE_TZ these backends refuse aware values; what is stored stays the same UTC.
            value = value.astimezone(timezone.utc).replace(tzinfo=None)
        return connection.ops.adapt_datetimefield_value(value)

    def from_db_value(self, value: Any, expression: Any, connection: Any) -> datetime | None:
        """Aware UTC."""
        if not isinstance(value, datetime):
            return None
        if value.tzinfo is timezone.utc:
            return value
        if value.tzinfo is None:
            # Without USE_TZ, PostgreSQL answers in the time zone of the connection, the others with what was stored.
            value = value.replace(tzinfo=_zone(connection) if connection.vendor == "postgresql" else timezone.utc)
        stored: datetime = value
        return stored.astimezone(timezone.utc)


def _zone(connection: Any) -> ZoneInfo:
    return ZoneInfo(connection.timezone_name)
