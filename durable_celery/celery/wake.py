"""How another thread gets the worker's event loop to look after its pool at once.

Celery's loop hears the end of a child by a pipe that the kernel closes a moment before the child can be reaped. Looking
in that moment it finds nothing, and looks again only with its timer, up to five seconds later.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from typing import Any


class Waker:
    """A pipe into the event loop; ``call`` runs there, in the loop's own thread."""

    def __init__(self, call: Callable[[], object]) -> None:
        self._call = call
        self._reader, self._writer = os.pipe()
        os.set_blocking(self._reader, False)
        os.set_blocking(self._writer, False)

    def register(self, hub: Any) -> None:
        """Listen in this loop; again after each reconnect, which empties it."""
        hub.add_reader(self._reader, self._on_readable)

    def wake(self) -> None:
        """Have ``call`` run soon; from any thread. Without a loop nothing happens."""
        with suppress(OSError):  # full: it is awake already; closed: the worker has ended
            os.write(self._writer, b".")

    def close(self) -> None:
        """Give the pipe back; the loop has ended."""
        os.close(self._reader)
        os.close(self._writer)

    def _on_readable(self) -> None:
        with suppress(BlockingIOError):
            os.read(self._reader, 4096)
        self._call()
