"""A run that is BLOCKED since its body does not fit its journal: both sides, line by line, for pages and terminals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from durable_celery import repair
from durable_celery.core import complaints, mismatches
from durable_celery.secrecy import Scrubber

SAME, NOT_REACHED = "the same", "not reached"


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchLine:
    """A position: what is recorded there, and what the body asks for. ``here``: there they part."""

    position: str
    recorded: str
    state: str
    requested: str
    here: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """What stands side by side, where the body stood, why it may be so, and what to do."""

    position: str
    line: str
    lines: Sequence[BenchLine]
    causes: Sequence[str]
    remedies: Sequence[str]


def sides_of(instance: Any) -> Mapping[str, Any] | None:
    """The two sides as data; None of an instance that nothing of the kind blocks, or that cannot be read."""
    try:
        return repair.mismatch_of(instance)
    except (ValueError, TypeError, KeyError, AttributeError):
        return None


def bench_of(instance: Any, scrub: Scrubber) -> Bench | None:
    """The same, ready to be shown; how a body ended may repeat a secret."""
    sides = sides_of(instance)
    if sides is None:
        return None
    row = sides.get("recorded_row") or {}
    here = BenchLine(
        position=str(sides.get("position", "")),
        recorded=str(sides.get("recorded", "")),
        state=str(row.get("state", "")),
        requested=scrub(str(sides.get("requested", ""))),
        here=True,
    )
    return Bench(
        position=here.position,
        line=str(sides.get("line", "")),
        lines=[
            *(_line(row, SAME) for row in sides.get("before") or ()),
            here,
            *(_line(row, NOT_REACHED) for row in sides.get("after") or ()),
        ],
        causes=mismatches.CAUSES,
        remedies=mismatches.REMEDIES,
    )


def _line(row: Mapping[str, Any], requested: str) -> BenchLine:
    return BenchLine(
        position=str(row["position"]),
        recorded=complaints.command_words(str(row["kind"]), str(row["name"]), int(row["members"])),
        state=str(row["state"]),
        requested=requested,
        here=False,
    )
