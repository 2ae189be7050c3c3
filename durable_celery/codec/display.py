"""Values as one line of text for people."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Iterator
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any
from uuid import UUID

_LEAVES = (type(None), bool, int, float, Decimal, UUID, datetime, date, time, timedelta)
_BRACKETS: dict[type, tuple[str, str]] = {list: ("[", "]"), tuple: ("(", ")"), set: ("{", "}"), frozenset: ("{", "}")}
_MAX_DEPTH = 8
_SPACE = re.compile(r"\s+")


def preview(value: Any, length: int = 200) -> str:
    """A value on one line of at most ``length`` characters, for messages and pages. Never raises, never queries.

    Model instances and querysets are named without being looked at; data class fields with ``repr=False`` are left out;
    an object whose own ``repr`` fails is shown by its class. Not redacted: pass it through ``redact`` first.
    """
    pieces: list[str] = []
    size = 0
    try:
        for piece in _pieces(value, length, 0):
            pieces.append(piece)
            size += len(piece)
            if size > length:
                break
        return _one_line("".join(pieces), length)
    except Exception:
        return _one_line(_class_name(value), length)


def _pieces(value: Any, length: int, depth: int) -> Iterator[str]:
    """The text in pieces, so that a large value is left as soon as the line is full."""
    kind = type(value)
    if kind in _LEAVES:
        yield _number(value) if kind is int else repr(value)
    elif kind is str or kind is bytes:
        yield repr(value[: length + 1])
    elif depth >= _MAX_DEPTH:
        yield "..."
    elif kind in _BRACKETS:
        yield from _collection(value, kind, length, depth)
    elif kind is dict:
        yield from _joined("{", "}", ((key, item) for key, item in value.items()), length, depth)
    elif issubclass(kind, Enum):
        yield f"{kind.__qualname__}.{value._name_}"
    elif issubclass(kind, tuple) and hasattr(kind, "_fields"):
        yield from _fields(kind, zip(kind._fields, value, strict=False), length, depth)
    elif dataclasses.is_dataclass(kind):
        shown = (field.name for field in dataclasses.fields(value) if field.repr)
        yield from _fields(kind, ((name, getattr(value, name, None)) for name in shown), length, depth)
    else:
        yield _foreign(value)


def _collection(value: Any, kind: type, length: int, depth: int) -> Iterator[str]:
    opening, closing = _BRACKETS[kind]
    if kind is frozenset or (kind is set and not value):
        opening, closing = f"{kind.__name__}(" + (opening if value else ""), (closing if value else "") + ")"
    if kind is tuple and len(value) == 1:
        closing = ",)"
    yield from _joined(opening, closing, ((_NO_KEY, item) for item in value), length, depth)


def _joined(opening: str, closing: str, items: Iterable[tuple[Any, Any]], length: int, depth: int) -> Iterator[str]:
    yield opening
    separator = ""
    for key, item in items:
        yield separator
        if key is not _NO_KEY:
            yield from _pieces(key, length, depth + 1)
            yield ": "
        yield from _pieces(item, length, depth + 1)
        separator = ", "
    yield closing


def _fields(kind: type, fields: Iterable[tuple[str, Any]], length: int, depth: int) -> Iterator[str]:
    yield f"{kind.__qualname__}("
    separator = ""
    for name, content in fields:
        yield f"{separator}{name}="
        yield from _pieces(content, length, depth + 1)
        separator = ", "
    yield ")"


def _foreign(value: Any) -> str:
    """An object of a class unknown here. A model's or queryset's own ``repr`` may query the database."""
    kind = type(value)
    if hasattr(kind, "_meta") and hasattr(kind, "pk"):
        return f"<{kind.__qualname__} pk={value.pk!r}>"
    if any(parent.__module__.startswith("django.db.") for parent in kind.__mro__):
        return _class_name(value)
    try:
        return repr(value)
    except Exception:
        return _class_name(value)


def _number(value: int) -> str:
    return repr(value) if value.bit_length() < 2000 else hex(value)


def _class_name(value: Any) -> str:
    return f"<{type(value).__module__}.{type(value).__qualname__}>"


def _one_line(text: str, length: int) -> str:
    text = _SPACE.sub(" ", text[: length + 1])
    text = "".join(char if char.isprintable() else char.encode("unicode_escape").decode("ascii") for char in text)
    return text if len(text) <= length else text[: max(length - 3, 0)] + "..."[:length]


_NO_KEY = object()
