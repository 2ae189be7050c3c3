"""Where a verb writes: lines and tables for people, one JSON document for programs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, TextIO

from durable_celery.codec import preview


class WrongUsage(Exception):  # noqa: N818 - it is the reader's, not the program's
    """What was asked for cannot be: an unknown state, an id that is none. The message says what is expected."""


class Console:
    """Two streams; text that a stream's encoding lacks is written as escapes, never an error."""

    def __init__(self, out: TextIO, err: TextIO) -> None:
        self._out = out
        self._err = err

    def line(self, text: str = "") -> None:
        _write(self._out, text)

    def error(self, text: str) -> None:
        _write(self._err, text)

    def document(self, value: Any) -> None:
        """The one JSON document of ``--json``. Times are ISO 8601; what JSON lacks becomes text."""
        _write(self._out, json.dumps(value, indent=2, default=_plain))

    def table(self, heads: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """Columns as wide as their widest cell, the last one ragged."""
        cells = [list(heads), *([_one_line(cell) for cell in row] for row in rows)]
        widths = [max(len(row[column]) for row in cells) for column in range(len(heads))]
        for row in cells:
            padded = [cell.ljust(width) for cell, width in zip(row[:-1], widths, strict=False)]
            self.line("  ".join([*padded, row[-1]]).rstrip())


def _write(stream: TextIO, text: str) -> None:
    encoding = getattr(stream, "encoding", None) or "utf-8"
    stream.write(text.encode(encoding, "backslashreplace").decode(encoding) + "\n")


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _plain(value: Any) -> str:
    return value.isoformat() if hasattr(value, "isoformat") else _text(value)


def _text(value: Any) -> str:
    return str(value) if type(value).__module__ in {"uuid", "decimal"} else preview(value, 10_000)
