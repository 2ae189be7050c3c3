"""What a body may use without a yield: values that are the same on replay, and its own words about itself."""

from __future__ import annotations

import copy
import logging
import random as dice
import uuid
from collections.abc import Callable, MutableMapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar

from durable_celery import codec, payloads, runtime
from durable_celery.core import labels, scope
from durable_celery.core.failure import printable
from durable_celery.errors import BadValue

T = TypeVar("T")
STATUS_LENGTH = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkflowInfo:
    """The instance a body runs for. ``id`` stays through ``continue_as_new``, ``run_number`` counts from 1 and
    ``run_id`` is that run's. ``history_length`` counts the journal rows the body has asked for so far, so
    that it is the same on replay; ``is_replaying`` is true until the body does something for the first time."""

    id: str
    run_id: str
    key: str | None
    name: str
    version: int
    started_at: datetime
    parent_id: str | None
    is_replaying: bool = False
    history_length: int = 0
    cancel_requested: bool = False
    run_number: int = 1


def now() -> datetime:
    """The time of this turn, aware UTC; the same on replay, and never going backwards within an instance.

    ``NotInWorkflow`` outside a body.
    """
    return scope.required("now()", "use django.utils.timezone.now()", reads=True).now


def uuid4() -> uuid.UUID:
    """A random uuid (version 4) that is the same on replay; another one at each call. ``NotInWorkflow`` outside."""
    return scope.required("uuid4()", "use uuid.uuid4()").uuid()


def random() -> dice.Random:
    """A seeded ``random.Random``: the same dice on replay, others in each instance and at each call.

    ``random().choice(people)``. Not for secrets. ``NotInWorkflow`` outside a body.
    """
    return scope.required("random()", "use the random module").dice()


def side_effect(function: Callable[[], T]) -> T:
    """Call ``function`` once and record its value; replay gives the recorded one.

    It may execute again after a crash before the turn committed, so it must have no external effect; those belong in
    steps. What it raises is raised here, and recorded nowhere. ``NotSerializable`` or ``PayloadTooLarge`` for a value
    that cannot be kept, ``NotInWorkflow`` outside a body. The idea is Temporal's.
    """
    run = scope.required("side_effect()", "just call the function")
    if not callable(function):
        raise BadValue(
            f"side_effect takes a function without arguments, got {function!r:.80}; write side_effect(lambda: ...)",
            path="function",
        )
    key = f"side:{run.ordinal()}"
    text = run.marker(key)
    if text is None:
        text = payloads.encode(function(), runtime.settings(), root="the value of side_effect")
        run.markers[key] = text
    value: T = codec.decode(text)
    return value


def set_status(text: str) -> None:
    """Set the status text people see in the admin and by ``durable show``; at most 500 characters are kept.

    Committed with the turn; the last call of a turn counts. ``BadValue`` for what is no str, ``NotInWorkflow`` outside.
    """
    if not isinstance(text, str):
        raise BadValue(f"set_status needs a str, got {type(text).__name__} {text!r:.80}", path="status")
    scope.required("set_status()", "it belongs to the body").status_text = printable(text)[:STATUS_LENGTH]


def set_attributes(**values: Any) -> None:
    """Set attributes people search by, beside those of ``using(attributes=...)`` and of earlier calls.

    Values are plain JSON (text, finite number, bool, None, list, dict), else ``BadValue`` with the path. A name given
    again is replaced whole; others stay. Committed with the turn; found by ``objects.with_attributes(**values)``.
    """
    checked: dict[str, Any] = labels.check_json(values, "attributes")
    run = scope.required("set_attributes()", "outside, give using(attributes={...}) at the start")
    if not run.replaying:
        # As they are now: the body may change a list or dict of its own afterwards.
        run.attributes.update(copy.deepcopy(checked))


def current_workflow() -> WorkflowInfo:
    """The instance this body runs for: ``id``, ``run_id``, ``key``, ``name``, ``version`` and more.

    See ``WorkflowInfo``. A value of this moment: ``is_replaying``, ``history_length`` and ``cancel_requested`` of a
    later call are those of then. ``NotInWorkflow`` outside a body.
    """
    run = scope.required("current_workflow()", "outside, use get_handle(id)", reads=True)
    info: WorkflowInfo = run.info
    return WorkflowInfo(
        id=info.id, run_id=info.run_id, key=info.key, name=info.name, version=info.version, started_at=info.started_at,
        parent_id=info.parent_id, is_replaying=run.replaying,
        history_length=run.rows,
        cancel_requested=run.cancelling.message is not None,
        run_number=info.run_number,
    )  # fmt: skip


def get_logger(name: str | None = None) -> logging.LoggerAdapter[logging.Logger]:
    """A logger that is silent while replaying; each of its records has ``instance_id`` and ``workflow``.

    ``name`` is that of the logger, by default the workflow's. ``NotInWorkflow`` outside a body.
    """
    run = scope.required("get_logger()", "use logging.getLogger()", reads=True)
    if name is not None and not isinstance(name, str):
        raise BadValue(f"get_logger takes the name of a logger or None, got {name!r:.80}", path="name")
    return _Logger(
        logging.getLogger(name or run.info.name), {"instance_id": run.instance_id, "workflow": run.info.name}
    )


class _Logger(logging.LoggerAdapter):  # type: ignore[type-arg]
    def isEnabledFor(self, level: int) -> bool:  # noqa: N802 - logging's name
        run = scope.active()
        return (run is None or not run.replaying) and super().isEnabledFor(level)

    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        kwargs["extra"] = {**(self.extra or {}), **kwargs.get("extra", {})}
        return msg, kwargs
