"""How far the clock of this process is off, by a fault; zero otherwise."""

from __future__ import annotations

from datetime import timedelta

NONE = timedelta(0)

offset = NONE


def put_off(by: timedelta) -> None:
    """Let this process's clock be off by this much from now on."""
    global offset
    offset = by
