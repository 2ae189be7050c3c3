"""Stored values as text for pages: decoded where their classes are known, secrets taken out, never longer than said.

A page shows what it must not trust: nothing here marks anything as safe, templates escape it all.
"""

from __future__ import annotations

import json
import pprint
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from django_app.disclosure import Disclosure
from durable_celery.codec import decode, preview, redact, redact_call
from durable_celery.codec.redaction import PLACEHOLDER, hidden_names
from durable_celery.core.failure import printable

PRETTY = 64 * 1024  # a longer value is shown on one line: laying it out would take seconds
SHORTEST_SECRET = 4  # a shorter one is a common word or number; taking it out of a text would only garble it
UNKNOWN = "[hidden: its name is not known to this process]"


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """Text for a page. ``note`` says what it is not: cut, or undecoded."""

    text: str = ""
    note: str = ""


@dataclass(slots=True)
class Budget:
    """How many characters of markup a page may still spend on values, so that no history makes it megabytes."""

    left: int

    def spend(self, text: str, most: int, *, end: bool = False) -> Shown:
        """The first ``most`` characters (the last ones with ``end``), fewer when the page is full."""
        shown = _cut(text, most, end=end)
        cost = len(escape(shown))
        if cost > self.left:
            # One character is up to six in markup.
            shown = _cut(shown, len(shown) * max(self.left, 0) // cost, end=end)
            cost = len(escape(shown))
        self.left -= cost
        if len(shown) == len(text):
            return Shown(text=text)
        if not shown:
            return Shown(text="…", note=f"{len(text):,} characters, and the page is full")
        return Shown(text=shown, note=f"the {'last' if end else 'first'} {len(shown):,} of {len(text):,} characters")


@dataclass(frozen=True, slots=True, kw_only=True)
class Scrubber:
    """Takes known secrets out of free text: error messages, tracebacks, status texts."""

    secrets: Sequence[str] = ()

    def __call__(self, text: str) -> str:
        for secret in self.secrets:
            text = text.replace(secret, PLACEHOLDER)
        return printable(text)


def _cut(text: str, most: int, *, end: bool) -> str:
    if len(text) <= most:
        return text
    return text[len(text) - most :] if end else text[:most]


def call_lines(encoded: str, disclosure: Disclosure) -> str:
    """Arguments as ``name = value`` lines; positions without a name by their number."""
    call = _decoded(encoded)
    if call is _UNREADABLE:
        return _raw(encoded, disclosure)
    args, kwargs = redacted_call(call, disclosure)
    lines = [f"{label} = {_pretty(value, len(encoded))}" for label, value in args]
    return "\n".join(lines + [f"{name} = {_pretty(value, len(encoded))}" for name, value in kwargs.items()])


def value_text(encoded: str, disclosure: Disclosure) -> str:
    """One value, laid out."""
    value = _decoded(encoded)
    if value is _UNREADABLE:
        return _raw(encoded, disclosure)
    return _pretty(redact(value, disclosure.hidden), len(encoded))


def call_data(encoded: str, disclosure: Disclosure) -> Any:
    """Arguments for a JSON document: by name, positions without one by their number; text if undecodable."""
    call = _decoded(encoded)
    if call is _UNREADABLE:
        return _raw(encoded, disclosure)
    args, kwargs = redacted_call(call, disclosure)
    return {**dict(args), **kwargs}


def value_data(encoded: str, disclosure: Disclosure) -> Any:
    """One value for a JSON document."""
    value = _decoded(encoded)
    return _raw(encoded, disclosure) if value is _UNREADABLE else redact(value, disclosure.hidden)


def scrubber(calls: Iterable[tuple[str, Disclosure]]) -> Scrubber:
    """What takes the secret arguments of these encoded calls out of texts."""
    found: set[str] = set()
    for encoded, disclosure in calls:
        call = _decoded(encoded)
        if call is _UNREADABLE:
            continue
        hidden = hidden_names(disclosure.hidden)
        args, kwargs = as_call(call)
        for name, value in _labelled(args, disclosure.parameters):
            found.update(_leaves(value, disclosure.parameters is None or hidden(name), hidden, 0))
        for name, value in kwargs.items():
            found.update(_leaves(value, hidden(str(name)), hidden, 0))
    return Scrubber(secrets=sorted((text for text in found if len(text) >= SHORTEST_SECRET), key=len, reverse=True))


def redacted_call(call: Any, disclosure: Disclosure) -> tuple[list[tuple[str, Any]], dict[str, Any]]:
    """Positions with their labels, and keywords. Positions of an unknown definition are hidden: any may be a secret."""
    args, kwargs = as_call(call)
    shown, shown_kwargs = redact_call(args, kwargs, disclosure.parameters or (), disclosure.hidden)
    if disclosure.parameters is None:
        shown = (UNKNOWN,) * len(shown)
    return _labelled(shown, disclosure.parameters), shown_kwargs


def as_call(value: Any) -> tuple[Sequence[Any], Mapping[str, Any]]:
    """Positional and keyword arguments of a decoded call."""
    if isinstance(value, Mapping) and set(value) <= {"args", "kwargs"}:
        return value.get("args", ()), value.get("kwargs", {})
    if isinstance(value, (list, tuple)) and len(value) == 2 and isinstance(value[1], Mapping):
        return value[0], value[1]
    return (value,), {}


def _decoded(encoded: str) -> Any:
    """The value, or ``_UNREADABLE``: its class may be gone or the text damaged, and the page must show all the same."""
    try:
        return decode(encoded)
    except Exception:
        return _UNREADABLE


def _raw(encoded: str, disclosure: Disclosure) -> str:
    """What cannot be decoded, as stored; as a whole redacted if a secret may be inside."""
    try:
        plain = json.loads(encoded)
    except (ValueError, RecursionError):
        plain = encoded
    hidden = hidden_names(disclosure.hidden)
    if disclosure.parameters is None or any(hidden(name) for name in (*disclosure.parameters, *_words(plain, 0))):
        return PLACEHOLDER
    return printable(encoded)


def _words(value: Any, depth: int) -> Iterator[str]:
    """Every text in a raw value that could be the name of something."""
    if depth > 100:
        yield "password"
    elif isinstance(value, dict):
        for key, item in value.items():
            yield key
            yield from _words(item, depth + 1)
    elif isinstance(value, list):
        for item in value:
            yield from _words(item, depth + 1)
    elif isinstance(value, str):
        yield value


def _leaves(value: Any, secret: bool, hidden: Any, depth: int) -> Iterator[str]:
    """The texts inside a value that stand under a hidden name."""
    if depth > 20:
        return
    if secret and isinstance(value, (str, int, float)) and not isinstance(value, bool):
        yield str(value)
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _leaves(item, secret or hidden(str(key)), hidden, depth + 1)
    elif isinstance(value, (list, tuple, set, frozenset)):
        for item in value:
            yield from _leaves(item, secret, hidden, depth + 1)
    else:
        for name in getattr(type(value), "__dataclass_fields__", ()) or getattr(type(value), "model_fields", ()):
            yield from _leaves(getattr(value, name, None), secret or hidden(name), hidden, depth + 1)


def _labelled(args: Sequence[Any], parameters: Sequence[str] | None) -> list[tuple[str, Any]]:
    return [(_label(parameters or (), index), value) for index, value in enumerate(args)]


def _label(parameters: Sequence[str], index: int) -> str:
    if index < len(parameters) and not parameters[index].startswith("*"):
        return parameters[index]
    rest = parameters[-1] if parameters else ""
    return f"{rest[1:]}[{index - len(parameters) + 1}]" if rest.startswith("*") else f"[{index}]"


def _pretty(value: Any, size: int) -> str:
    if size > PRETTY:
        return preview(value, PRETTY)
    try:
        return printable(pprint.pformat(value, width=100, sort_dicts=False, underscore_numbers=False))
    except Exception:
        return preview(value, PRETTY)


_UNREADABLE: Any = object()
