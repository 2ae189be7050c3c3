"""The picture of a run."""

from __future__ import annotations

from datetime import timedelta

import pytest

from django_app.timeline import LABEL, MARGIN, NARROWEST, WIDTH, Line, Span, draw, words
from tests.django_app.rows import at


def span(start: float, end: float | None, look: str = "good") -> Span:
    return Span(start=at(start), end=None if end is None else at(end), look=look, title="attempt 1")


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        (0, "0 ms"), (0.34, "340 ms"), (1, "1 s"), (12.54, "12.5 s"), (59.99, "1 min"), (200, "3 min 20 s"),
        (3600, "1 h"), (7500, "2 h 5 min"), (86_400, "1 d"), (3 * 86_400 + 4 * 3600 + 59, "3 d 4 h"),
    ],
)  # fmt: skip
def test_durations_are_told_in_two_units_at_most(seconds: float, expected: str) -> None:
    assert words(timedelta(seconds=seconds)) == expected


def test_without_spans_there_is_no_picture() -> None:
    assert draw([], now=at(0)) is None
    assert draw([Line(label="1")], now=at(0)) is None


def test_bars_lie_in_proportion_to_time() -> None:
    picture = draw([Line(label="1", spans=[span(0, 5)]), Line(label="2", spans=[span(5, 10)])], now=at(10))
    assert picture is not None
    first, second = (line.bars[0] for line in picture.lines)
    half = (WIDTH - LABEL - MARGIN) / 2
    assert (float(first.x), float(first.width)) == (LABEL, half)
    assert (float(second.x), float(second.width)) == (LABEL + half, half)
    assert float(second.y) > float(first.y)
    assert [mark.text for mark in picture.marks][::3] == ["0 ms", "5 s", "10 s"]


def test_what_still_runs_reaches_up_to_now() -> None:
    picture = draw([Line(label="1", spans=[span(0, 5), span(5, None)])], now=at(10))
    assert picture is not None
    running = picture.lines[0].bars[1]
    assert float(running.x) + float(running.width) == WIDTH - MARGIN
    assert running.title == "attempt 1 (5 s so far)"


def test_a_long_wait_is_folded_and_work_stays_visible() -> None:
    lines = [Line(label="1", spans=[span(0, 10)]), Line(label="2", spans=[span(10, 300_000, "waiting")])]
    picture = draw(lines, now=at(300_000))
    assert picture is not None
    work, wait = (line.bars[0] for line in picture.lines)
    assert float(work.width) > float(wait.width) > NARROWEST
    assert [fold.title for fold in picture.folds] == ["3 d 11 h in which nothing ran, drawn short"]


def test_a_run_that_only_waits_is_not_folded() -> None:
    picture = draw([Line(label="1", spans=[span(0, 300_000, "waiting")])], now=at(300_000))
    assert picture is not None
    assert picture.folds == []
    assert float(picture.lines[0].bars[0].width) == WIDTH - LABEL - MARGIN


def test_an_instant_and_a_clock_that_went_back_still_give_a_bar() -> None:
    picture = draw([Line(label="1", spans=[span(5, 5), span(5, 3)])], now=at(0))
    assert picture is not None
    assert [float(bar.width) for bar in picture.lines[0].bars] == [NARROWEST, NARROWEST]


def test_long_names_keep_their_end() -> None:
    picture = draw([Line(label="1  " + "package." * 20 + "charge", spans=[span(0, 1)])], now=at(1))
    assert picture is not None
    assert picture.lines[0].label.startswith("…")
    assert picture.lines[0].label.endswith("package.charge")
    assert picture.lines[0].full_label.startswith("1  package.")
