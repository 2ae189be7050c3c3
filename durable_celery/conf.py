"""The ``DURABLE_CELERY`` dict as one frozen value. Pure: Django's settings come in as a plain mapping.

A key that is wrong is a problem for ``manage.py check`` and falls back to its default here, so that nothing that runs
already stops because of a typing mistake. A wrong ``RETENTION`` keeps everything: workers do not run the checks, and
what they removed would not come back.
"""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from durable_celery.core.retry import RetryPolicy, policy_of, seconds_of
from durable_celery.errors import BadValue

LONGEST_RETENTION = timedelta(days=36525)  # a hundred years; laws ask for ten and more
REDACT = ("password", "passwd", "token", "secret", "api_key", "authorization", "credit_card", "card_number", "cvv")


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Every key of ``DURABLE_CELERY``, in lower case; durations as timedelta, sizes in bytes, limits in rows."""

    queue: str | None = None
    step_timeout: timedelta = timedelta(seconds=300)
    retry: RetryPolicy = RetryPolicy()  # noqa: RUF009 - frozen
    tick: timedelta = timedelta(seconds=1)
    tick_in_worker: bool = True
    lease: timedelta = timedelta(seconds=10)
    max_deaths: int = 3
    max_expiries: int = 10
    publish_timeout: timedelta = timedelta(seconds=2)
    strict_arguments: bool = False
    turn_timeout: timedelta = timedelta(seconds=10)
    payload_warn: int = 64 * 1024
    payload_limit: int = 1024 * 1024
    payload_storage: str | None = None
    payload_keys: Sequence[str] | None = None
    history_warn: int = 2_000
    history_limit: int = 50_000
    inline_steps: int = 20
    inline_seconds: timedelta = timedelta(seconds=5)
    retention: timedelta | None = timedelta(days=30)
    redact: Sequence[str] = REDACT
    database: str = "default"
    cleanup_timeout: timedelta = timedelta(hours=1)
    middleware: Sequence[Any] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One key that is wrong: what it holds, what was expected, what to do."""

    key: str
    text: str


def settings_of(given: Any) -> tuple[Settings, list[Problem]]:
    """The settings in force and everything that is wrong with what was given."""
    if not isinstance(given, Mapping):
        return Settings(), [Problem(key="DURABLE_CELERY", text=f"DURABLE_CELERY must be a dict, got {given!r}")]
    values: dict[str, Any] = {}
    problems = []
    for key, value in given.items():
        reader = _READERS.get(key)
        if reader is None:
            problems.append(Problem(key=str(key), text=_unknown(key)))
            continue
        try:
            values[key.lower()] = reader(value, key)
        except BadValue as error:
            problems.append(Problem(key=key, text=f"DURABLE_CELERY[{key!r}]: {error}"))
            if key == "RETENTION":
                values["retention"] = None
    return dataclasses.replace(Settings(), **values), problems


def _unknown(key: Any) -> str:
    near = difflib.get_close_matches(str(key).upper(), _READERS, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]!r}?" if near else f"known keys are {', '.join(sorted(_READERS))}"
    return f"DURABLE_CELERY has an unknown key {key!r}; {hint}"


# -- one reader a kind of value: returns it or raises BadValue ---------------------------------------------------------


def _duration(minimum: float) -> Callable[[Any, str], timedelta]:
    return lambda value, key: timedelta(seconds=seconds_of(value, key, minimum=minimum))


def _retention(value: Any, key: str) -> timedelta | None:
    return None if value is None else timedelta(seconds=seconds_of(value, key, longest=LONGEST_RETENTION))


def _count(minimum: int) -> Callable[[Any, str], int]:
    def read(value: Any, key: str) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or value < minimum:
            raise BadValue(f"must be an int >= {minimum}, got {value!r}", path=key)
        return value

    return read


def _flag(value: Any, key: str) -> bool:
    if not isinstance(value, bool):
        raise BadValue(f"must be True or False, got {value!r}", path=key)
    return value


def _optional_text(value: Any, key: str) -> str | None:
    if value is not None and (not isinstance(value, str) or not value.strip()):
        raise BadValue(f"must be a non-empty str or None, got {value!r}", path=key)
    return value


def _text(value: Any, key: str) -> str:
    if not isinstance(value, str) or not value.strip():
        raise BadValue(f"must be a non-empty str, got {value!r}", path=key)
    return value


def _texts(value: Any, key: str) -> tuple[str, ...]:
    if isinstance(value, str) or not isinstance(value, (list, tuple, set, frozenset)):
        raise BadValue(f"must be a list of str, got {value!r}", path=key)
    for item in value:
        _text(item, key)
    return tuple(value)


def _optional_texts(value: Any, key: str) -> tuple[str, ...] | None:
    return None if value is None else _texts(value, key)


def _callables(value: Any, key: str) -> tuple[Any, ...]:
    if isinstance(value, str) or not isinstance(value, (list, tuple)):
        raise BadValue(f"must be a list of callables or dotted paths, got {value!r}", path=key)
    for item in value:
        if not callable(item) and not (isinstance(item, str) and "." in item):
            raise BadValue(f"must hold callables or dotted paths to them, got {item!r}", path=key)
    return tuple(value)


_READERS: dict[str, Callable[[Any, str], Any]] = {
    "QUEUE": _optional_text,
    "STEP_TIMEOUT": _duration(0.001),
    "RETRY": lambda value, key: policy_of(value),
    "TICK": _duration(0.05),
    "TICK_IN_WORKER": _flag,
    "LEASE": _duration(1),
    "MAX_DEATHS": _count(1),
    "MAX_EXPIRIES": _count(1),
    "PUBLISH_TIMEOUT": _duration(0.05),
    "STRICT_ARGUMENTS": _flag,
    "TURN_TIMEOUT": _duration(0.1),
    "PAYLOAD_WARN": _count(1),
    "PAYLOAD_LIMIT": _count(1),
    "PAYLOAD_STORAGE": _optional_text,
    "PAYLOAD_KEYS": _optional_texts,
    "HISTORY_WARN": _count(1),
    "HISTORY_LIMIT": _count(1),
    "INLINE_STEPS": _count(0),
    "INLINE_SECONDS": _duration(0),
    "RETENTION": _retention,
    "REDACT": _texts,
    "DATABASE": _text,
    "CLEANUP_TIMEOUT": _duration(0.1),
    "MIDDLEWARE": _callables,
}
