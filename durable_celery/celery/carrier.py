"""The message that carries an existing task: ``durable_celery.run_task``, seen by nobody but under the task's own name.

Rules of this file:
- Celery traces it by our function instead of its own, so signals, hooks and log lines are the task's alone, and once.
- What the worker's main process makes events of is the end the task itself had.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from billiard.einfo import ExceptionInfo
from celery import states
from celery.app.trace import TraceInfo, trace_ok_t
from celery.exceptions import Ignore

from durable_celery import sweeps
from durable_celery.celery.transport import HEADER, RUN_TASK
from durable_celery.engine.attempts import Ended
from durable_celery.errors import BadValue

logger = logging.getLogger(__name__)


def run_task(task: Any, *args: Any, **kwargs: Any) -> None:
    """What runs when it is called as a task of its own: nothing."""
    raise BadValue(f"{RUN_TASK} carries a task of a workflow; yield task.s(...) in a workflow instead of sending it")


class Tracer:
    """The attribute ``__trace__`` of its class: Celery's assignments of a tracer of its own change nothing."""

    def __init__(self, attempt: Callable[[int, Mapping[str, Any]], Ended]) -> None:
        self._attempt = attempt

    def __get__(self, task: Any, owner: Any = None) -> Any:
        if task is None:
            return self
        return lambda uuid, args, kwargs, request=None: self._trace(task.app, uuid, request or {})

    def __set__(self, task: Any, tracer: Any) -> None:
        """Kept as it is."""

    def _trace(self, app: Any, uuid: str, request: Mapping[str, Any]) -> Any:
        header = request.get(HEADER)
        began = time.monotonic()
        try:
            if not isinstance(header, dict):
                run_task(None)
            close_connections(app)
            return _traced(self._run(app, header), began)  # type: ignore[arg-type]
        except BadValue as error:
            return trace_ok_t(ExceptionInfo(), TraceInfo(states.FAILURE, error), _since(began), None)
        except Exception:
            logger.exception("%s [%s] was interrupted; the tick goes on with it", RUN_TASK, uuid)
            return _ignored(began)
        finally:
            close_connections(app)

    def _run(self, app: Any, header: Mapping[str, Any]) -> Ended:
        step_id = int(header["step"])
        if header.get("task") in app.tasks:
            return self._attempt(step_id, header)
        sweeps.unknown_step(step_id)
        return Ended(kind="refused")


def close_connections(app: Any) -> None:
    """What Celery's Django fixup does around every task it traces itself."""
    for fixup in getattr(app, "_fixups", ()):
        worker = getattr(fixup, "worker_fixup", None)
        for name in ("close_database", "close_cache"):
            close = getattr(worker, name, None)
            if close is not None:
                with suppress(Exception):
                    close()


def _traced(ended: Ended, began: float) -> Any:
    if ended.kind == "refused":
        return _ignored(began)
    if ended.task is not None and ended.task.traced is not None:
        return ended.task.traced
    error = ended.error if isinstance(ended.error, Exception) else RuntimeError(repr(ended.error))
    try:
        raise error
    except Exception:
        return trace_ok_t(ExceptionInfo(), TraceInfo(states.FAILURE, error), _since(began), None)


def _ignored(began: float) -> Any:
    ignored = Ignore()
    try:
        raise ignored
    except Ignore:
        return trace_ok_t(ExceptionInfo(internal=True), TraceInfo(states.IGNORED, ignored), _since(began), None)


def _since(began: float) -> float:
    return time.monotonic() - began
