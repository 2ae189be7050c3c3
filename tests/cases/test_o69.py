"""Lazy translations became text inside the worker, in the worker's language instead of the user's.

A lazy text given to a start, a signal or a step is text at that moment, in the language that is active there.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.utils import translation
from django.utils.functional import Promise, SimpleLazyObject
from django.utils.translation import gettext_lazy, trans_real

from durable_celery import NotSerializable, Signal, Workflow, step, workflow
from tests.pump import Pump

told = Signal("o69.told")
given: list[Any] = []

# A catalogue as msgfmt writes it: the header, and one text with its translation.
TEXT, GERMAN = "Order received", "Bestellung eingegangen"


@step(name="o69.notify")
def notify(text: Any) -> Any:
    given.append(text)
    return text


@workflow(name="o69.confirm")
def confirm(subject: Any, lines: Any = ()) -> Workflow[list[Any]]:
    given.append(subject)
    answer = yield from notify(subject)
    message = yield from told.wait(timeout=60)
    return [subject, list(lines), answer, message]


@pytest.fixture(autouse=True)
def _a_german_catalogue(tmp_path: Path, settings: Any) -> Iterator[None]:
    given.clear()
    folder = tmp_path / "de" / "LC_MESSAGES"
    folder.mkdir(parents=True)
    (folder / "django.mo").write_bytes(catalogue({"": "Content-Type: text/plain; charset=UTF-8\n", TEXT: GERMAN}))
    settings.LOCALE_PATHS = [str(tmp_path)]
    settings.USE_I18N = True
    trans_real._translations.clear()  # type: ignore[attr-defined]
    yield
    trans_real._translations.clear()  # type: ignore[attr-defined]


def catalogue(texts: dict[str, str]) -> bytes:
    """The bytes of a .mo file (GNU gettext, little-endian)."""
    pairs = [(k.encode() + b"\0", v.encode() + b"\0") for k, v in sorted(texts.items())]
    count, start = len(pairs), 28 + 16 * len(pairs)
    keys, values, body = b"", b"", b""
    for key, _ in pairs:
        keys += struct.pack("<II", len(key) - 1, start + len(body))
        body += key
    for _, value in pairs:
        values += struct.pack("<II", len(value) - 1, start + len(body))
        body += value
    return struct.pack("<7I", 0x950412DE, 0, count, 28, 28 + 8 * count, 0, start) + keys + values + body


def test_o69_a_lazy_argument_is_stored_and_delivered_in_the_language_of_the_start(pump: Pump) -> None:
    with translation.override("de"):
        handle = confirm.start(gettext_lazy(TEXT), lines=[gettext_lazy(TEXT), {"more": gettext_lazy(TEXT)}])
        told.send(handle, (gettext_lazy(TEXT),))
    with translation.override("en"):
        pump.drain()
        subject, lines, answer, message = handle.result(timeout=0)
        (entry,) = [entry for entry in handle.history() if entry.kind == "step"]
    assert (subject, lines, answer, message) == (GERMAN, [GERMAN, {"more": GERMAN}], GERMAN, (GERMAN,))
    assert entry.args == ((GERMAN,), {})
    assert given.count(GERMAN) == len(given) >= 3
    assert {type(value) for value in (subject, *lines[:1], answer, *message, *given)} == {str}


def test_o69_another_language_is_active_where_another_start_is_made(pump: Pump) -> None:
    lazy = gettext_lazy(TEXT)
    with translation.override("de"):
        german = confirm.start(lazy)
    with translation.override("en"):
        english = confirm.start(lazy)
    pump.drain()
    assert isinstance(lazy, Promise)
    assert [handle.history()[0].args[0] for handle in (german, english)] == [(GERMAN,), (TEXT,)]


def test_o69_a_key_made_of_a_lazy_text_is_refused_as_no_text(pump: Pump) -> None:
    with translation.override("de"), pytest.raises(ValueError, match="key must be a str"):
        confirm.using(key=gettext_lazy(TEXT))  # type: ignore[arg-type]


def test_o69_no_other_lazy_object_reaches_a_row_undetected(pump: Pump) -> None:
    evaluated: list[int] = []

    def evaluate() -> str:
        evaluated.append(1)
        return "text"

    lazy = SimpleLazyObject(evaluate)
    with pytest.raises(NotSerializable, match=r"args\[0\] of o69.confirm cannot be stored: .*lazy"):
        confirm.start(lazy)
    assert evaluated == []
