from __future__ import annotations

from collections import Counter
from datetime import datetime, timedelta, timezone
from types import SimpleNamespace

import pytest

from demo.audit import Finding, Verdict
from demo.report import Progress, ProgressBar, audit_lines, last_line, timeline

START = datetime(2026, 1, 5, 9, 0, tzinfo=timezone.utc)
HALF_WAY = Progress(placed=300, closed=250, waiting=40, orders=500, kills=Counter({"worker": 1}), elapsed=31.4)


def entry(name: str, after: float, took: float | None, **others: object) -> SimpleNamespace:
    scheduled_at = START + timedelta(seconds=after)
    finished_at = None if took is None else scheduled_at + timedelta(seconds=took)
    fields = {"position": "1", "kind": "step", "state": "SUCCEEDED", "attempts": 1, "error": None}
    return SimpleNamespace(name=name, scheduled_at=scheduled_at, finished_at=finished_at, **(fields | others))


def test_the_last_line_names_every_figure() -> None:
    verdict = Verdict(orders=500, closed=499, findings=(Finding("stuck", "order-7"),))
    assert last_line(verdict, 3) == "demo: 500 orders, 499 closed, 0 lost, 1 stuck, 0 doubled, 3 worker kills survived"


def test_findings_are_said_in_words_up_to_a_number() -> None:
    verdict = Verdict(orders=3, closed=3, findings=tuple(Finding("lost", f"order-{n}") for n in range(3)))
    assert audit_lines(verdict, most=2).splitlines() == ["  lost: order-0", "  lost: order-1", "  ... and 1 more"]


def test_a_timeline_counts_from_the_first_entry_and_shows_open_ones() -> None:
    lines = timeline("order-1 WAITING", [entry("shop.pay", 0, 1.5), entry("payment", 2, None)]).splitlines()
    assert lines[0] == "order-1 WAITING"
    assert lines[2].split()[:5] == ["0.00", "s", "1.50", "s", "1"]
    assert lines[3].split()[:4] == ["2.00", "s", "1", "payment"]


def test_a_timeline_shows_the_first_line_of_an_error() -> None:
    assert timeline("t", [entry("shop.pay", 0, 1, error="GatewayDown: no answer\nmore")]).endswith("no answer")


def test_progress_is_one_line_written_over_on_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    bar = ProgressBar(live=True)
    bar.show(HALF_WAY)
    bar.end(HALF_WAY)
    written = capsys.readouterr().out
    assert written.count("\r") == 2
    assert written.count("\n") == 1
    assert "250/500 closed, 300 placed, 40 waiting, 31 s; killed: worker 1" in written


def test_progress_is_a_line_now_and_then_elsewhere(capsys: pytest.CaptureFixture[str]) -> None:
    bar = ProgressBar(live=False)
    for _ in range(5):
        bar.show(HALF_WAY)
    bar.end(HALF_WAY)
    written = capsys.readouterr().out
    assert written.count("\n") == 2
    assert "\r" not in written
