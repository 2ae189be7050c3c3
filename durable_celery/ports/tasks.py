"""An attempt of an existing Celery task."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from durable_celery.core.failure import Failure


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskCall:
    """One attempt of an existing Celery task. ``retries`` counts the ones it asked for before, as Celery does."""

    name: str
    id: str  # the same on every attempt
    root_id: str
    args: Sequence[Any]
    kwargs: Mapping[str, Any]
    retries: int
    node: str
    options: Mapping[str, Any]  # headers, shadow, priority, timelimit
    limited: Callable[[], AbstractContextManager[None]]  # goes around the body
    keep: Callable[[Any], str]  # encodes the result; raises PayloadError
    keep_call: Callable[[Sequence[Any], Mapping[str, Any]], str | None]  # of a retry; None: the arguments are the same
    # What of it may come to logs and events, by the task's function: the call, its value, its error.
    tell_call: Callable[[Callable[..., Any]], tuple[Any, Any]]
    tell_value: Callable[[Callable[..., Any], Any], Any]
    tell_error: Callable[[Callable[..., Any], BaseException], Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskEnd:
    """How an attempt of an existing task ended. ``state`` is one of Celery's: SUCCESS, FAILURE, RETRY, IGNORED,
    REJECTED.

    RETRY has ``delay``, and ``args``, ``queue`` where they change; REJECTED means that it goes back and is to run again
    after ``delay``. ``traced`` is what Celery's own tracer would return.
    """

    state: str
    value: Any = None
    result: str | None = None
    error: BaseException | None = None
    failure: Failure | None = None
    delay: timedelta = timedelta(0)
    args: str | None = None
    queue: str | None = None
    traced: Any = None
