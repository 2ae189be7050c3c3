"""Stored values as text for pages: decoded where their classes are known, secrets taken out, never longer than said.

A page shows what it must not trust: nothing here marks anything as safe, templates escape it all.
"""

from __future__ import annotations

import json
import pprint
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from html import escape
from typing import Any

from durable_celery.codec import decode, preview, redact, redact_call
from durable_celery.codec.redaction import PLACEHOLDER, hidden_names
from durable_celery.core.failure import printable
from durable_celery.disclosure import Disclosure
from durable_celery.secrecy import as_call, labelled

PRETTY = 64 * 1024  # a longer value is shown on one line: laying it out would take seconds
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


def _cut(text: str, most: int, *, end: bool) -> str:
    if len(text) <= most:
        return text
    return text[len(text) - most :] if end else text[:most]


Known = Callable[[Any], Any]  # takes out what is known to be secret, whatever name it has


def call_lines(encoded: str, disclosure: Disclosure, known: Known = lambda value: value) -> str:
    """Arguments as ``name = value`` lines; positions without a name by their number."""
    call = _decoded(encoded)
    if call is _UNREADABLE:
        return _raw(encoded, disclosure)
    args, kwargs = known(redacted_call(call, disclosure))
    lines = [f"{label} = {_pretty(value, len(encoded))}" for label, value in args]
    return "\n".join(lines + [f"{name} = {_pretty(value, len(encoded))}" for name, value in kwargs.items()])


def value_text(encoded: str, disclosure: Disclosure, known: Known = lambda value: value) -> str:
    """One value, laid out."""
    value = _decoded(encoded)
    if value is _UNREADABLE:
        return _raw(encoded, disclosure)
    return _pretty(known(redact(value, disclosure.hidden)), len(encoded))


def call_data(encoded: str, disclosure: Disclosure, known: Known = lambda value: value) -> Any:
    """Arguments for a JSON document: by name, positions without one by their number; text if undecodable."""
    call = _decoded(encoded)
    if call is _UNREADABLE:
        return _raw(encoded, disclosure)
    args, kwargs = known(redacted_call(call, disclosure))
    return {**dict(args), **kwargs}


def value_data(encoded: str, disclosure: Disclosure, known: Known = lambda value: value) -> Any:
    """One value for a JSON document."""
    value = _decoded(encoded)
    return _raw(encoded, disclosure) if value is _UNREADABLE else known(redact(value, disclosure.hidden))


def redacted_call(call: Any, disclosure: Disclosure) -> tuple[list[tuple[str, Any]], dict[str, Any]]:
    """Positions with their labels, and keywords. Positions of an unknown definition are hidden: any may be a secret."""
    args, kwargs = as_call(call)
    shown, shown_kwargs = redact_call(args, kwargs, disclosure.parameters or (), disclosure.hidden)
    if disclosure.parameters is None:
        shown = (UNKNOWN,) * len(shown)
    return labelled(shown, disclosure.parameters), shown_kwargs


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


def _pretty(value: Any, size: int) -> str:
    if size > PRETTY:
        return preview(value, PRETTY)
    try:
        return printable(pprint.pformat(value, width=100, sort_dicts=False, underscore_numbers=False))
    except Exception:
        return preview(value, PRETTY)


_UNREADABLE: Any = object()
