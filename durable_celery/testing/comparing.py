"""What came of a run, and what in it is not as it was in another."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from durable_celery.core.failure import Failure
from durable_celery.ports import TestedStore
from durable_celery.testing.runs import Run

MOMENT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:\d\d)?")
JOURNAL = ("position", "kind", "name", "args", "state", "result")

Effect = tuple[str, str, str]  # run, position, name of a step


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What came of one run. ``ends`` and ``journals`` are by run; ``begun`` counts bodies, ``kept`` atomic commits."""

    ends: Mapping[str, tuple[Any, ...]]
    journals: Mapping[str, Sequence[tuple[Any, ...]]]
    begun: Mapping[Effect, int]
    kept: Mapping[Effect, int]
    effects: object = None


def seen_of(
    store: TestedStore, run: Run[Any], begun: Mapping[Effect, int], kept: Mapping[Effect, int], effects: object
) -> Seen:
    """Everything that is compared."""
    tree = store.tree(UUID(run.id))
    names = {str(run_id): name for run_id, name in tree.items()}
    ends, journals = {}, {}
    for run_id, name in tree.items():
        loaded = store.load(run_id)
        assert loaded is not None
        row = loaded.instance
        ends[name] = (row.state, _timeless(row.result), _error(row.failure))
        journals[name] = [
            (*(_timeless(each[field]) for field in JOURNAL), _error(each["error"])) for each in store.history(run_id)
        ]
    return Seen(
        ends=ends, journals=journals, begun=_named(begun, names), kept=_named(kept, names),
        effects=effects,
    )  # fmt: skip


def _named(counted: Mapping[Effect, int], names: Mapping[str, str]) -> dict[Effect, int]:
    return {(names[run], place, step): count for (run, place, step), count in counted.items() if run in names}


def _timeless(text: Any) -> Any:
    return MOMENT.sub("(a moment)", text) if isinstance(text, str) else text


def _error(failure: str | None) -> str:
    return Failure.from_text(failure).type if failure else ""


def difference(straight: Seen, other: Seen, *, crashes: int) -> str | None:
    """What is not as it was on the straight run, in words; None if nothing is."""
    for name in dict.fromkeys([*straight.ends, *other.ends]):
        was, now = straight.ends.get(name), other.ends.get(name)
        if was != now:
            return f"{name} ended {_end(now)}, and straight {_end(was)}"
        if found := _other_rows(name, straight.journals[name], other.journals[name]):
            return found
    return _other_counts(straight, other, crashes) or _other_effects(straight, other)


def _end(end: tuple[Any, ...] | None) -> str:
    if end is None:
        return "not at all, as it was never started"
    state, result, error = end
    return f"{state} with {error or result}"


def _other_rows(name: str, was: Sequence[tuple[Any, ...]], now: Sequence[tuple[Any, ...]]) -> str | None:
    ours, theirs = ({row[0]: row for row in rows} for rows in (was, now))
    for position in dict.fromkeys([*ours, *theirs]):
        one, other = ours.get(position), theirs.get(position)
        if one != other:
            return f"the journal of {name} has at {position} {_row(other)}, and straight {_row(one)}"
    return None


def _row(row: tuple[Any, ...] | None) -> str:
    if row is None:
        return "nothing"
    _, kind, name, args, state, result, error = row
    return f"{kind} {name}{args or ''} {state} {error or result or ''}".rstrip()


def _other_counts(straight: Seen, other: Seen, crashes: int) -> str | None:
    for effect in dict.fromkeys([*straight.begun, *other.begun]):
        name, position, step = effect
        what = f"step {step} at {position} of {name}"
        if effect in straight.kept or effect in other.kept:
            was, now = straight.kept.get(effect, 0), other.kept.get(effect, 0)
            if was != now:
                return f"{what} is atomic and was committed {now} times, and straight {was} times"
        was, now = straight.begun.get(effect, 0), other.begun.get(effect, 0)
        if not min(was, 1) <= now <= was + crashes:
            return f"{what} began {now} times, and straight {was}: at most {crashes} more are promised"
    return None


def _other_effects(straight: Seen, other: Seen) -> str | None:
    if straight.effects != other.effects:
        return f"effects() returned {other.effects!r:.300}, and straight {straight.effects!r:.300}"
    return None
