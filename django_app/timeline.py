"""A run as bars over time, ready to be drawn: one row a step, one bar an attempt. Pure; numbers come out as text.

Text, because a template would print a number in the reader's language, and ``12,5`` is no coordinate.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

WIDTH = 1000.0
LABEL = 240.0  # where the bars begin
MARGIN = 50.0  # at the right, for the last label of the scale
ROW = 20.0
HEAD = 24.0  # the scale, above the rows
BAR = 12.0
NARROWEST = 2.5
LABEL_LENGTH = 36
DIVISIONS = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """Something that took time. ``end`` None: it still does. ``look`` names its colour, ``title`` says it in words."""

    start: datetime
    end: datetime | None
    look: str
    title: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One row of the picture."""

    label: str
    spans: Sequence[Span] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    x: str
    y: str
    width: str
    height: str
    look: str
    title: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawnLine:
    label: str
    full_label: str
    y: str
    bars: Sequence[Bar] = field(default_factory=tuple)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """One line of the scale, ``text`` after the start."""

    x: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """What the template draws."""

    width: str
    height: str
    label_x: str
    lines: Sequence[DrawnLine]
    marks: Sequence[Mark]


def draw(lines: Sequence[Line], *, now: datetime) -> Timeline | None:
    """The picture of ``lines`` from first start to last end, open spans up to ``now``; None if all are empty."""
    spans = [span for line in lines for span in line.spans]
    if not spans:
        return None
    begin = min(span.start for span in spans)
    end = max(max(span.start, span.end or now) for span in spans)
    whole = max(end - begin, timedelta(milliseconds=1))
    height = HEAD + ROW * len(lines) + 4
    return Timeline(
        width=_number(WIDTH),
        height=_number(height),
        label_x=_number(LABEL - 8),
        lines=[_line(line, index, begin, whole, now) for index, line in enumerate(lines)],
        marks=_marks(whole),
    )


def words(duration: timedelta) -> str:
    """A duration for people: ``340 ms``, ``12.5 s``, ``3 min 20 s``, ``2 h 5 min``, ``3 d 4 h``."""
    seconds = duration.total_seconds()
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 60:
        return f"{seconds:.1f}".removesuffix(".0") + " s"
    for unit, size, below, step in (("min", 60, "s", 1), ("h", 3600, "min", 60), ("d", 86400, "h", 3600)):
        if seconds < size * {"min": 60, "h": 24, "d": 1e9}[unit]:
            whole, rest = divmod(int(seconds), size)
            return f"{whole} {unit}" + (f" {rest // step} {below}" if rest // step else "")
    return str(duration)


def _line(line: Line, index: int, begin: datetime, whole: timedelta, now: datetime) -> DrawnLine:
    top = HEAD + ROW * index
    return DrawnLine(
        label=_shortened(line.label),
        full_label=line.label,
        y=_number(top + ROW / 2 + 4),
        bars=[_bar(span, top, begin, whole, now) for span in line.spans],
    )


def _bar(span: Span, top: float, begin: datetime, whole: timedelta, now: datetime) -> Bar:
    end = max(span.end or now, span.start)
    height = BAR / 3 if span.look == "queued" else BAR
    return Bar(
        x=_number(_x((span.start - begin) / whole)),
        y=_number(top + (ROW - height) / 2),
        width=_number(max((end - span.start) / whole * (WIDTH - LABEL - MARGIN), NARROWEST)),
        height=_number(height),
        look=span.look,
        title=f"{span.title} ({words(end - span.start)}{'' if span.end else ' so far'})",
    )


def _marks(whole: timedelta) -> list[Mark]:
    step = whole / DIVISIONS
    return [Mark(x=_number(_x(index / DIVISIONS)), text=words(step * index)) for index in range(DIVISIONS + 1)]


def _x(share: float) -> float:
    return LABEL + share * (WIDTH - LABEL - MARGIN)


def _shortened(label: str) -> str:
    """The end of a dotted name tells more than its beginning."""
    return label if len(label) <= LABEL_LENGTH else "…" + label[-(LABEL_LENGTH - 1) :]


def _number(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")
