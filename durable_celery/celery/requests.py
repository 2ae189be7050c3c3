"""How a worker's main process treats our messages when their child dies: quietly, since the engine runs the step again.

To Celery a lost child is a final failure: it would store a result and send ``task_failure`` for a step that goes on.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from billiard.einfo import ExceptionWithTraceback  # type: ignore[attr-defined]
from billiard.exceptions import TimeLimitExceeded, WorkerLostError
from celery.worker.state import task_ready
from kombu.utils.imports import symbol_by_name

from durable_celery.celery.transport import HEADER

if TYPE_CHECKING:
    from celery.worker.request import Request
else:
    Request = object

logger = logging.getLogger(__name__)


class _DurableRequest(Request):
    """Over a task's own Request class."""

    _request_dict: dict[str, Any]

    @property
    def _is_ours(self) -> bool:
        return HEADER in self._request_dict

    @property
    def store_errors(self) -> bool:
        """Never, for our messages; ``task_store_errors_even_if_ignored`` means other tasks."""
        return not self._is_ours and bool(super().store_errors)

    def on_failure(self, exc_info: Any, send_failed_event: bool = True, return_ok: bool = False) -> Any:
        """A child that is gone is the watch's business: here the message is only put aside."""
        error = exc_info.exception
        if isinstance(error, ExceptionWithTraceback):
            error = error.exc
        if self._is_ours and isinstance(error, (WorkerLostError, TimeLimitExceeded)):
            task_ready(self)
            logger.info("%s: %s; its row decides what follows", self.humaninfo(), error)
            return None
        return super().on_failure(exc_info, send_failed_event=send_failed_event, return_ok=return_ok)

    def on_timeout(self, soft: bool, timeout: float) -> Any:
        """The pool's limit, far beyond the attempt's own."""
        if not self._is_ours:
            return super().on_timeout(soft, timeout)
        if not soft:
            task_ready(self)
            logger.error("%s: its process did not end for %s s and is killed by the pool", self.humaninfo(), timeout)
        return None


def request_class(base: Any) -> type:
    """The Request class for our tasks of an app whose tasks have ``base``, by name or class."""
    return type("DurableRequest", (_DurableRequest, symbol_by_name(base)), {})
