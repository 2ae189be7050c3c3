"""Random programs: nested lists that `body.interpreted` runs. Every program ends the same way on every schedule.

A program is `{"runs": [block, ...], "end": "return" | "fail" | "cancel"}`: all runs but the last continue as new. A
block is a list of statements, each `[kind, ...]`; what races has a winner that no fault can change.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from hypothesis import strategies as st

Statement = list[Any]
Program = dict[str, Any]

numbers = st.integers(0, 9)


def _joined(parts: Any) -> list[list[Statement]]:
    runs, (first, then) = parts
    return [*runs, [*first, *then]]


def _statement(kind: str, *parts: Any) -> Any:
    return st.tuples(st.just(kind), *parts).map(list)


step = _statement("step", numbers)
retried = _statement("retried", numbers, st.integers(1, 2))
atomic = _statement("atomic", numbers)
sleep = _statement("sleep", st.integers(0, 90))
leaf = st.one_of(step, step, retried, atomic, sleep)
member = st.recursive(
    leaf,
    lambda inner: st.one_of(
        _statement("gather", st.lists(inner, min_size=1, max_size=3), st.one_of(st.none(), st.integers(1, 2))),
        _statement("race", inner),
    ),
    max_leaves=3,
)
gather = _statement("gather", st.lists(member, min_size=2, max_size=3), st.one_of(st.none(), st.integers(1, 2)))
race = _statement("race", member)
late = _statement("late", st.integers(1, 90))
refused = _statement("refused", numbers)
compensated = _statement("compensated", numbers)
asked = _statement("asked", numbers, st.booleans())  # a signal from outside; sent before it is waited for, or after
told = _statement("told", st.lists(numbers, min_size=1, max_size=3))  # signals that steps of its own send
handled = _statement("handled", st.lists(numbers, min_size=1, max_size=3))
updated = _statement("updated", st.lists(st.integers(-3, 9), min_size=1, max_size=3))  # negative ones are rejected
polled = _statement("polled", st.integers(1, 3))
mapped = _statement("mapped", st.lists(numbers, max_size=5), st.one_of(st.none(), st.integers(1, 2)))
guarded = _statement("guarded", numbers)
plain = (
    step,
    retried,
    sleep,
    gather,
    gather,
    race,
    late,
    refused,
    asked,
    told,
    handled,
    updated,
    polled,
    mapped,
    guarded,
)
inner_block = st.lists(st.one_of(step, retried, gather, race, refused, asked), min_size=1, max_size=3)
child = _statement("child", inner_block, st.sampled_from(["return", "return", "fail"]))
spawned = _statement("spawned", member, inner_block)
carried = st.lists(st.one_of(*plain, child, spawned), min_size=1, max_size=2)  # owes nothing: may continue as new
owing = st.tuples(
    st.lists(compensated, max_size=2), st.lists(st.one_of(*plain, child, spawned), min_size=3, max_size=5)
)
programs = st.fixed_dictionaries(
    {
        "end": st.sampled_from(["fail", "return", "cancel", "return"]),
        "runs": st.tuples(st.lists(carried, max_size=1), owing).map(_joined),
    }
)

FEATURES = (
    "step", "retried", "atomic", "sleep", "gather", "race", "late", "refused", "compensated", "asked", "told",
    "handled", "updated", "polled", "mapped", "guarded", "child", "spawned", "continue_as_new", "fail", "cancel",
)  # fmt: skip


def features(program: Program) -> Counter[str]:
    """How often each feature occurs in a program, at whatever depth."""
    found = Counter(kind for block in program["runs"] for kind in _kinds(block))
    found["continue_as_new"] = len(program["runs"]) - 1
    found[program["end"]] += 1
    return +found


def _kinds(statements: list[Statement]) -> Iterator[str]:
    for statement in statements:
        yield statement[0]
        for part in statement[1:]:
            if isinstance(part, list) and part and isinstance(part[0], str):
                yield from _kinds([part])
            elif isinstance(part, list):
                yield from _kinds([each for each in part if isinstance(each, list)])
