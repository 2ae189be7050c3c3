"""A run as bars over time, ready to be drawn: one row a step, one bar an attempt. Pure; numbers come out as text.

Text, because a template would print a number in the reader's language, and ``12,5`` is no coordinate. Long stretches in
which nothing runs are drawn short (folded): a wait of three days must not hide the seconds in which things happened.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import accumulate, pairwise

WIDTH = 1000.0
LABEL = 240.0  # where the bars begin
MARGIN = 50.0  # at the right, for the last label of the scale
ROW = 20.0
HEAD = 24.0  # the scale, above the rows
BAR = 12.0
NARROWEST = 2.5
LABEL_LENGTH = 36
DIVISIONS = 6
IDLE = ("waiting", "queued")
FOLD = 0.3  # a stretch of waiting takes at most this share of the time in which something ran


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
    bars: Sequence[Bar]


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """One line of the scale, ``text`` after the start."""

    x: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Fold:
    """A stretch that is drawn shorter than it was."""

    x: str
    width: str
    title: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """What the template draws."""

    width: str
    height: str
    label_x: str
    lines: Sequence[DrawnLine]
    marks: Sequence[Mark]
    folds: Sequence[Fold]


def draw(lines: Sequence[Line], *, now: datetime) -> Timeline | None:
    """The picture of ``lines`` from first start to last end, open spans up to ``now``; None if all are empty."""
    spans = [span for line in lines for span in line.spans]
    if not spans:
        return None
    scale = Scale(spans, now)
    return Timeline(
        width=_number(WIDTH),
        height=_number(HEAD + ROW * len(lines) + 4),
        label_x=_number(LABEL - 8),
        lines=[_line(line, index, scale, now) for index, line in enumerate(lines)],
        marks=[scale.mark(index / DIVISIONS) for index in range(DIVISIONS + 1)],
        folds=scale.folds(),
    )


def words(duration: timedelta) -> str:
    """A duration for people: ``340 ms``, ``12.5 s``, ``3 min 20 s``, ``2 h 5 min``, ``3 d 4 h``."""
    seconds = duration.total_seconds()
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 59.95:
        return f"{seconds:.1f}".removesuffix(".0") + " s"
    whole = round(seconds)
    if whole < 3600:
        return _two(whole, 60, "min", 1, "s")
    if whole < 86_400:
        return _two(whole, 3600, "h", 60, "min")
    return _two(whole, 86_400, "d", 3600, "h")


class Scale:
    """From time to x. Between two changes of the picture it is linear; where nothing ran it may be folded."""

    def __init__(self, spans: Sequence[Span], now: datetime) -> None:
        ends = [max(span.end or now, span.start) for span in spans]
        times = sorted({*(span.start for span in spans), *ends})
        if len(times) == 1:
            times.append(times[0] + timedelta(milliseconds=1))
        self._times = times
        pairs = list(pairwise(times))
        lengths = [(end - start).total_seconds() for start, end in pairs]
        busy = _busy([start for start, _ in pairs], spans, ends)
        worked = sum(length for length, is_busy in zip(lengths, busy, strict=True) if is_busy)
        longest = worked * FOLD if worked else max(lengths)
        drawn = [length if is_busy else min(length, longest) for length, is_busy in zip(lengths, busy, strict=True)]
        self._folded = [short < length for short, length in zip(drawn, lengths, strict=True)]
        self._shares = [0.0]
        for short in drawn:
            self._shares.append(self._shares[-1] + short / sum(drawn))

    def x(self, when: datetime) -> float:
        """Where a time lies, in the units of the drawing."""
        index = min(max(bisect_right(self._times, when) - 1, 0), len(self._times) - 2)
        start, end = self._times[index], self._times[index + 1]
        within = (when - start) / (end - start)
        return _at(self._shares[index] + within * (self._shares[index + 1] - self._shares[index]))

    def mark(self, share: float) -> Mark:
        """The line of the scale at a share of the width, with the time it stands for."""
        index = min(bisect_right(self._shares, share) - 1, len(self._times) - 2)
        width = self._shares[index + 1] - self._shares[index]
        within = (share - self._shares[index]) / width if width else 0.0
        when = self._times[index] + (self._times[index + 1] - self._times[index]) * min(within, 1.0)
        return Mark(x=_number(_at(share)), text=words(when - self._times[0]))

    def folds(self) -> list[Fold]:
        """The stretches drawn short."""
        return [
            Fold(
                x=_number(_at(self._shares[index])),
                width=_number(_at(self._shares[index + 1]) - _at(self._shares[index])),
                title=f"{words(self._times[index + 1] - self._times[index])} in which nothing ran, drawn short",
            )
            for index, folded in enumerate(self._folded)
            if folded
        ]


def _busy(starts: Sequence[datetime], spans: Sequence[Span], ends: Sequence[datetime]) -> list[bool]:
    """For each stretch, known by its start, whether something ran in it."""
    changes: Counter[datetime] = Counter()
    for span, end in zip(spans, ends, strict=True):
        if span.look not in IDLE:
            changes[span.start] += 1
            changes[end] -= 1
    return [running > 0 for running in accumulate(changes[start] for start in starts)]


def _line(line: Line, index: int, scale: Scale, now: datetime) -> DrawnLine:
    top = HEAD + ROW * index
    return DrawnLine(
        label=_shortened(line.label),
        full_label=line.label,
        y=_number(top + ROW / 2 + 4),
        bars=[_bar(span, top, scale, now) for span in line.spans],
    )


def _bar(span: Span, top: float, scale: Scale, now: datetime) -> Bar:
    end = max(span.end or now, span.start)
    height = BAR / 3 if span.look == "queued" else BAR
    x = scale.x(span.start)
    return Bar(
        x=_number(x),
        y=_number(top + (ROW - height) / 2),
        width=_number(max(scale.x(end) - x, NARROWEST)),
        height=_number(height),
        look=span.look,
        title=f"{span.title} ({words(end - span.start)}{'' if span.end else ' so far'})",
    )


def _two(seconds: int, large: int, large_unit: str, small: int, small_unit: str) -> str:
    rest = seconds % large // small
    return f"{seconds // large} {large_unit}" + (f" {rest} {small_unit}" if rest else "")


def _at(share: float) -> float:
    return LABEL + share * (WIDTH - LABEL - MARGIN)


def _shortened(label: str) -> str:
    """The end of a dotted name tells more than its beginning."""
    return label if len(label) <= LABEL_LENGTH else "…" + label[-(LABEL_LENGTH - 1) :]


def _number(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")
