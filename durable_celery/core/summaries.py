"""What is known of the members of a map without reading them one by one, and what came of them. Pure.

Members are rows apart from the journal: an open map is summed up, one that has just ended is read once, and from then
on its own row has everything the body is to see.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from durable_celery.core import transitions as t
from durable_celery.core.failure import Failure

PACKED = 4 * 1024 * 1024  # characters its own row may hold; beyond, the rows of the members are read again each turn
NOT_STARTED = (t.HELD, t.SCHEDULED, t.RETRYING)
RUNNING = (t.SCHEDULED, t.RETRYING, t.RUNNING, t.EXTERNAL)  # HELD ones start only while another runs, or never


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberFailure:
    """The end of a member that failed; ``text`` is an encoded Failure."""

    text: str
    attempt: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MapFailure(Failure):
    """The error of the lowest failed member, with those of all others by index: for the map's own row."""

    members: dict[str, dict[str, Any]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcomes:
    """What became of each member: encoded results by index (None where there is none), failures by index."""

    results: tuple[str | None, ...] = ()
    failures: Mapping[int, MemberFailure] = field(default_factory=dict)

    def packed(self) -> tuple[str | None, MapFailure | None]:
        """As result and failure of the map's row; no result if that would be too long for one."""
        first = self.failures[min(self.failures)] if self.failures else None
        shown = None if first is None else _shown(first)
        result = f"[{','.join(result or 'null' for result in self.results)}]"
        if len(result) + sum(len(failure.text) for failure in self.failures.values()) > PACKED:
            return None, shown
        if shown is not None:
            for index, failure in self.failures.items():
                shown.members[str(index)] = {"attempt": failure.attempt, "failure": json.loads(failure.text)}
        return result, shown


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """How many members of a map are in each state. ``outcomes`` and ``ended_at`` once none runs any more."""

    counts: Mapping[str, int]
    outcomes: Outcomes | None = None
    ended_at: datetime | None = None

    def count(self, *states: str) -> int:
        """How many members are in one of these states."""
        return sum(self.counts.get(state, 0) for state in states)

    @property
    def drained(self) -> bool:
        """No member runs, or is going to before another has ended."""
        return not self.count(*RUNNING)

    @property
    def ended(self) -> int:
        """Members that will not run any more."""
        return self.count(*t.STEP_FINAL)


def outcomes_of(members: int, rows: Iterable[tuple[int, str, str | None, str | None, int]]) -> Outcomes:
    """From rows of (index, state, result, failure, attempt). Of failures but the first, tracebacks stay on the rows."""
    results: list[str | None] = [None] * members
    failed: dict[int, MemberFailure] = {}
    for index, state, result, failure, attempt in rows:
        if state == t.SUCCEEDED:
            results[index] = result
        elif state == t.FAILED:
            failed[index] = MemberFailure(text=failure or "", attempt=attempt)
    first = min(failed, default=None)
    for index in failed.keys() - {first}:
        failed[index] = MemberFailure(text=_trimmed(failed[index].text), attempt=failed[index].attempt)
    return Outcomes(results=tuple(results), failures=failed)


def unpacked(result: str, failure: str | None) -> tuple[str, dict[int, MemberFailure]]:
    """The results (encoded, a list) and failures of a map's row."""
    members = MapFailure.from_text(failure).members if failure else {}  # type: ignore[attr-defined]
    failures = {int(i): MemberFailure(text=json.dumps(m["failure"]), attempt=m["attempt"]) for i, m in members.items()}
    return result, failures


def _shown(first: MemberFailure) -> MapFailure:
    shown = MapFailure.from_text(first.text)
    assert isinstance(shown, MapFailure)
    return shown


def _trimmed(text: str) -> str:
    data = json.loads(text) if text else {"type": "Unknown", "message": "no error was recorded"}
    data.pop("traceback", None)
    return json.dumps(data)
