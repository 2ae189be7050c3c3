"""Commands that a body has built and not yielded yet: one that never is did not run, and somebody must say so. Pure."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

from durable_celery.core import complaints
from durable_celery.errors import UsageError

if TYPE_CHECKING:
    from durable_celery.core.commands import Command
    from durable_celery.core.run import Run


class Unyielded:
    """Those of one run."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._built: dict[int, weakref.ref[Command[Any]]] = {}
        self._complaint: UsageError | None = None

    def built(self, command: Command[Any]) -> None:
        """A command was constructed in the body."""
        self._built[id(command)] = weakref.ref(command)

    def dropped(self, command: Command[Any]) -> None:
        """A command went away unused. After an error was thrown in since it was built, that is the error's doing."""
        self._built.pop(id(command), None)
        if not self._run.closing and not self._run.ended and self._missed(command):
            self._complaint = self._complaint or complaints.unyielded(command)

    def complain(self) -> None:
        """``UsageError`` if one was dropped."""
        if self._complaint is not None:
            raise self._complaint

    def require_all(self, value: Any = None) -> None:
        """``UsageError`` if one is still kept, but for the ``value`` that the body returns."""
        for reference in list(self._built.values()):
            command = reference()
            if command is not None and command is not value and not command.used and self._missed(command):
                raise complaints.unyielded(command)

    def _missed(self, command: Command[Any]) -> bool:
        return command.whole and command.throws == self._run.throws
