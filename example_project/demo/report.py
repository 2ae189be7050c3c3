"""What the demo prints."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from .audit import OrderBook, Verdict

BAR_WIDTH = 30
LINE_EVERY = 5.0


@dataclass(frozen=True)
class Progress:
    placed: int
    closed: int
    waiting: int
    orders: int
    kills: Counter[str]
    elapsed: float


class ProgressBar:
    """One line that is written over, on a terminal; elsewhere a line every few seconds."""

    def __init__(self, live: bool | None = None) -> None:
        self._live = sys.stdout.isatty() if live is None else live
        self._next_line = 0.0

    def show(self, progress: Progress) -> None:
        if self._live:
            sys.stdout.write(f"\r\x1b[2K{progress_line(progress)}")
        elif time.monotonic() >= self._next_line:
            self._next_line = time.monotonic() + LINE_EVERY
            sys.stdout.write(f"{progress_line(progress)}\n")
        sys.stdout.flush()

    def end(self, progress: Progress) -> None:
        self._next_line = 0.0
        self.show(progress)
        if self._live:
            sys.stdout.write("\n")


def progress_line(progress: Progress) -> str:
    filled = BAR_WIDTH * progress.closed // max(progress.orders, 1)
    kills = ", ".join(f"{target} {count}" for target, count in sorted(progress.kills.items()))
    return (
        f"[{'#' * filled}{'.' * (BAR_WIDTH - filled)}] {progress.closed:3}/{progress.orders} closed, "
        f"{progress.placed} placed, {progress.waiting} waiting, {progress.elapsed:.0f} s"
        f"{f'; killed: {kills}' if kills else ''}"
    )


def outcome_table(orders: Iterable[OrderBook]) -> str:
    """How many orders ended how: by state of the workflow, and by what the customer was told."""
    outcomes = Counter((", ".join(order.workflow_states) or "none", _outcome(order)) for order in orders)
    rows = sorted(outcomes.items(), key=lambda row: (row[0][0] != "COMPLETED", -row[1], row[0]))
    lines = [f"  {'workflow':12} {'order':38} {'count':>5}"]
    lines += [f"  {state:12} {outcome:38} {count:5}" for (state, outcome), count in rows]
    return "\n".join(lines)


def _outcome(order: OrderBook) -> str:
    refunded = ", refunded" if "REFUNDED" in order.payments else ""
    reason = f": {order.cancelled_because}" if order.cancelled_because else ""
    return f"{order.state.lower()}{reason}{refunded}"


def timeline(title: str, history: Iterable[Any]) -> str:
    """One instance, entry by entry; times count from the first one's scheduling."""
    entries = list(history)
    zero = min((entry.scheduled_at for entry in entries if entry.scheduled_at), default=None)
    lines = [title, f"  {'at':>8} {'took':>8}  {'':4} {'name':28} {'state':10} attempts"]
    lines += [_entry_line(entry, zero) for entry in entries]
    return "\n".join(lines)


def _entry_line(entry: Any, zero: datetime | None) -> str:
    at = _seconds(zero, entry.scheduled_at)
    took = _seconds(entry.scheduled_at, entry.finished_at)
    attempts = entry.attempts if entry.attempts else ""
    error = f"  {_first_line(entry.error)}" if entry.error else ""
    name = f"{entry.name or entry.kind}"
    return f"  {at:>8} {took:>8}  {entry.position!s:4} {name:28} {entry.state!s:10} {attempts}{error}"


def _seconds(since: datetime | None, until: datetime | None) -> str:
    return f"{(until - since).total_seconds():.2f} s" if since and until else ""


def _first_line(error: Any) -> str:
    return str(error).strip().splitlines()[0][:80]


def audit_lines(verdict: Verdict, most: int = 20) -> str:
    """The findings in words; a line saying so when there are none."""
    if not verdict.findings:
        return "  stock, payments and shipments agree with every workflow"
    lines = [f"  {finding.kind}: {finding.text}" for finding in verdict.findings[:most]]
    if len(verdict.findings) > most:
        lines.append(f"  ... and {len(verdict.findings) - most} more")
    return "\n".join(lines)


def last_line(verdict: Verdict, worker_kills: int) -> str:
    return (
        f"demo: {verdict.orders} orders, {verdict.closed} closed, {verdict.count('lost')} lost, "
        f"{verdict.count('stuck')} stuck, {verdict.count('doubled')} doubled, {worker_kills} worker kills survived"
    )
