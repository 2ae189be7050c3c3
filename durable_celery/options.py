"""The options of workflows and of their starts, checked where they are given."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from datetime import datetime, timezone
from typing import Any

from durable_celery.core import labels
from durable_celery.core.retry import seconds_of
from durable_celery.errors import BadValue


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkflowOptions:
    """The options of ``@workflow``, checked; durations in seconds."""

    version: int = 1
    key: Callable[..., Any] | None = None
    execution_timeout: float | None = None
    expected: float | None = None
    fails_on: tuple[type[BaseException], ...] = ()
    redact: tuple[str, ...] = ()
    queue: str | None = None
    priority: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StartOptions:
    """What ``using`` may set for the starts made through what it returns; durations in seconds."""

    key: str | None = None
    queue: str | None = None
    priority: int | None = None
    start_delay: float = 0.0
    execution_timeout: float | None = None
    attributes: Mapping[str, Any] | None = None
    memo: Mapping[str, Any] | None = None
    subject: Any = None
    signal: tuple[Any, Any] | None = None
    conflict: str = "use_existing"
    reuse: str = "allow"
    parent_close: str = "cancel"
    id: str | None = None


def workflow_options(given: dict[str, Any]) -> WorkflowOptions:
    """The options of ``@workflow``; ``BadValue`` says what is wrong with one, and what was meant."""
    known = [f.name for f in fields(WorkflowOptions)]
    checked = dict(given)
    for option in given:
        if option not in known:
            near = difflib.get_close_matches(option, known, n=1)
            raise BadValue(
                f"@workflow has no option {option!r}; "
                + (f"did you mean {near[0]!r}?" if near else f"known are {', '.join(known)}"),
                path=option,
            )
    version = checked.get("version", 1)
    if isinstance(version, bool) or not isinstance(version, int) or version < 1:
        raise BadValue(f"version={version!r} is not allowed, expected an int >= 1", path="version")
    if checked.get("key") is not None and not callable(checked["key"]):
        raise BadValue(
            f"key={checked['key']!r} is not allowed, expected a callable of the workflow's arguments", path="key"
        )
    for option in ("execution_timeout", "expected"):
        if checked.get(option) is not None:
            checked[option] = seconds_of(checked[option], option, minimum=0.001)
    kinds = checked.get("fails_on", ())
    kinds = tuple(kinds) if isinstance(kinds, (tuple, list, set, frozenset)) else (kinds,)
    if not all(isinstance(kind, type) and issubclass(kind, Exception) for kind in kinds):
        raise BadValue(f"fails_on={kinds!r} is not allowed, expected exception classes", path="fails_on")
    checked["fails_on"] = kinds
    names = checked.get("redact", ())
    if isinstance(names, str) or not all(isinstance(n, str) for n in names):
        raise BadValue(f"redact={names!r} is not allowed, expected a tuple of argument names", path="redact")
    checked["redact"] = tuple(names)
    labels.check_routing(checked.get("queue"), checked.get("priority"))
    return WorkflowOptions(**checked)


def plain(given: Mapping[str, Any] | None, what: str) -> dict[str, Any] | None:
    """Attributes or a memo, checked to be plain JSON; ``BadValue`` with the path of what is not."""
    if given is None:
        return None
    if not isinstance(given, Mapping):
        raise BadValue(f"{what}={given!r:.80} is not allowed, expected a dict or None", path=what)
    checked: dict[str, Any] = labels.check_json(dict(given), what)
    return checked


def from_celery(start: StartOptions, options: dict[str, Any]) -> StartOptions:
    """Options with those of ``apply_async`` in them; ``BadValue`` for one that a workflow has another word for."""
    changes: dict[str, Any] = {k: options.pop(k) for k in ("queue", "priority") if k in options}
    labels.check_routing(changes.get("queue"), changes.get("priority"))
    if options.get("countdown") is not None:
        changes["start_delay"] = seconds_of(options["countdown"], "countdown", minimum=0)
    eta = options.get("eta")
    if eta is not None and not isinstance(eta, datetime):
        raise BadValue(f"eta={eta!r:.80} is not allowed, expected a datetime; countdown= takes seconds", path="eta")
    if eta is not None:
        eta = eta if eta.tzinfo is not None else eta.astimezone()
        changes["start_delay"] = max(0.0, (eta - datetime.now(timezone.utc)).total_seconds())
    if options.get("task_id"):
        changes["id"] = str(options["task_id"])
    unknown = sorted(set(options) - {"countdown", "eta", "task_id"} - {k for k, v in options.items() if v is None})
    if unknown:
        raise BadValue(
            f"apply_async of a workflow knows countdown, eta, task_id, queue and priority, not {', '.join(unknown)}; "
            "link and link_error: yield the next step instead; expires: execution_timeout",
            path=unknown[0],
        )
    return replace(start, **changes)
