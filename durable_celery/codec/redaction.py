"""Values for display with secrets taken out. It hides from readers; it does not encrypt what is stored."""

from __future__ import annotations

import dataclasses
import re
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date, time, timedelta
from decimal import Decimal
from enum import Enum
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Any
from uuid import UUID

from durable_celery.codec import models
from durable_celery.codec.display import preview

PLACEHOLDER = "[redacted]"
MAX_DEPTH = 100

_LEAVES = (type(None), bool, int, float, str, bytes, Decimal, UUID, date, time, timedelta, Enum)
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_SEPARATOR = re.compile(r"[^\w]+")
_DIGITS = re.compile(r"\d+(?=_|$)")

Hidden = Callable[[str], bool]


def redact(value: Any, names: Iterable[str], *, placeholder: str = PLACEHOLDER) -> Any:
    """A copy of a value for display, in which whatever bears one of ``names`` is the placeholder. Never raises.

    A name is a dict key or a field. ``names`` ignore case: a plain one such as ``password`` fits as a whole or as a
    part (``user_password``, ``password2``, ``X-Password``, ``userPassword``), one with ``*`` as a pattern
    (``*token*``). Lists and sets come back as lists, tuples as tuples, data classes, named tuples and pydantic models
    as dicts of their fields; other objects as a line of text. What cannot be looked into is replaced as a whole.
    """
    return _safely(value, hidden_names(names), placeholder)


def redact_call(
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    parameter_names: Sequence[str],
    names: Iterable[str],
    *,
    placeholder: str = PLACEHOLDER,
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Arguments for display: like ``redact``, with positional ones known by ``parameter_names``. Never raises.

    A last parameter name with a star (``*codes``) stands for all further positions. Positions without a name are looked
    into, but have none that could fit.
    """
    hidden = hidden_names(names)
    shown = tuple(
        placeholder if hidden(name) else _safely(arg, hidden, placeholder)
        for name, arg in zip(_position_names(parameter_names, len(args)), args, strict=True)
    )
    return shown, _safely(dict(kwargs), hidden, placeholder)


def hidden_names(names: Iterable[str]) -> Hidden:
    """Whether a name is one of those to hide, as ``redact`` understands ``names``."""
    return _hidden((names,) if isinstance(names, str) else tuple(str(name) for name in names))


@lru_cache(maxsize=512)
def _hidden(names: tuple[str, ...]) -> Hidden:
    parts = [f"_{_parts(name)}_" for name in names if "*" not in name and name.strip("_ ")]
    patterns = [name.lower() for name in names if "*" in name]

    @lru_cache(maxsize=4096)
    def hidden(name: str) -> bool:
        spelled = f"_{_parts(name)}_"
        bare = _DIGITS.sub("", spelled)
        return any(part in spelled or part in bare for part in parts) or any(
            fnmatchcase(name.lower(), pattern) or fnmatchcase(spelled.strip("_"), pattern) for pattern in patterns
        )

    return hidden


def _parts(name: str) -> str:
    """``userPassword``, ``User-Password`` and ``user_password`` alike."""
    return _SEPARATOR.sub("_", _HUMP.sub("_", name)).lower().strip("_")


def _position_names(parameter_names: Sequence[str], count: int) -> list[str]:
    names = [name.lstrip("*") for name in parameter_names[:count]]
    rest = parameter_names[-1] if parameter_names else ""
    filler = rest.lstrip("*") if rest.startswith("*") else ""
    return names + [filler] * (count - len(names))


def _safely(value: Any, hidden: Hidden, placeholder: str) -> Any:
    try:
        return _shown(value, hidden, placeholder, 0)
    except Exception:  # showing too little is the safe side
        return placeholder


def _shown(value: Any, hidden: Hidden, placeholder: str, depth: int) -> Any:
    kind = type(value)
    if issubclass(kind, _LEAVES):
        return value
    if depth > MAX_DEPTH:
        return placeholder

    def inside(item: Any) -> Any:
        return _shown(item, hidden, placeholder, depth + 1)

    fields = _fields(value)
    if fields is not None:
        return {key: placeholder if hidden(str(key)) else inside(item) for key, item in fields}
    if issubclass(kind, tuple):
        return tuple(inside(item) for item in value)
    if issubclass(kind, (list, set, frozenset, deque)):
        return [inside(item) for item in value]
    return preview(value)


def _fields(value: Any) -> Iterable[tuple[Any, Any]] | None:
    kind = type(value)
    if issubclass(kind, Mapping):
        entries: Iterable[tuple[Any, Any]] = value.items()
        return entries
    if issubclass(kind, tuple) and hasattr(kind, "_fields"):
        return zip(kind._fields, value, strict=False)
    if models.is_model(kind):
        return [*vars(value).items(), *(value.__pydantic_extra__ or {}).items()]
    if dataclasses.is_dataclass(kind):
        return [(field.name, getattr(value, field.name, None)) for field in dataclasses.fields(kind)]
    return None
