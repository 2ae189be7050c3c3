"""Compensation by hand."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from durable_celery.core import scope
from durable_celery.core.commands import Command, ShieldCommand, StepCommand
from durable_celery.errors import BadValue, CancelRequested, StepFailed
from durable_celery.replayed import get_logger


class Saga:
    """Undo commands, run newest first by ``yield from saga.compensate()``.

    The same as ``compensate_with`` where the body wants to decide when: nothing runs by itself. A failing undo stops
    neither the others nor hides the error being handled; it is logged and stays visible in the journal. After Garcia-
    Molina and Salem, "Sagas" (1987).
    """

    def __init__(self) -> None:
        self._undos: list[StepCommand[Any]] = []

    def add(self, undo: Command[Any]) -> None:
        """Remember a step command, or the signature of a task, to run if things are taken back.

        A command counts as used then; yielding it too is refused.
        """
        if not isinstance(undo, Command):
            undo = scope.required("saga.add", "call it in a workflow").adapt(undo) or undo
        if not isinstance(undo, StepCommand):
            raise BadValue(
                f"saga.add takes a step command such as refund(receipt), or task.s(...), got {undo!r:.80}", path="undo"
            )
        undo.use()
        self._undos.append(undo)

    def compensate(self) -> Generator[Command[Any], Any, None]:
        """Run what was added, newest first, each as a durable step; a second call has nothing left to do.

        A cancel or ``execution_timeout`` that comes meanwhile stops none of them, and is raised after the last.
        """
        while self._undos:
            undo = self._undos.pop()
            undo.used = False
            try:
                yield from ShieldCommand(undo)
            except StepFailed as error:
                # Not its message, which may repeat a secret: nothing may be read here to find out.
                where = f"step {error.step} at {error.position} ended in {error.error_type}"
                get_logger().error("a compensation failed, the others go on: %s", where)
            except CancelRequested:
                self._undos.append(undo)  # a shielded one ends first: this one has not been started
                yield from self.compensate()
                raise
