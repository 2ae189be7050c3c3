"""Judges what is in the books of a run. Pure.

lost      what was promised and did not happen: an end, an effect, a refund, a message, a result
stuck     what is open and goes nowhere
doubled   what happened twice, or to somebody who should not have had it
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.chaos.ledger import Line
from tests.chaos.scripts import SCRIPTS, Promise

FINAL = ("COMPLETED", "FAILED", "CANCELLED", "TERMINATED")
ENTRIES = 2  # rows of one result of an atomic step
UNDO = "undo "
ACCEPTED, CLOSED = "accepted", "closed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """A message and what its sender was told. ``unsure``: an earlier try ended in an error, and may have got through.

    ``answer`` is that of an update: its value, or "closed".
    """

    kind: str
    number: int
    outcome: str
    unsure: bool = False
    answer: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What is known of one run. ``states``: of each chain with its key, that of the newest run."""

    run: str
    script: str
    args: tuple[Any, ...]
    states: Sequence[str]
    result: Any = None
    about: str = ""
    sent: Sequence[Sent] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A row of the journal. ``attempt`` counts its claims."""

    state: str
    attempt: int
    atomic: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Books:
    """``steps`` and ``effects`` by idempotency key; ``open_rows`` in words: what is open, or has no waker."""

    runs: Sequence[Run]
    lines: Sequence[Line]
    steps: Mapping[str, Step]
    effects: Mapping[str, int]
    open_rows: Sequence[str] = ()
    again: Sequence[Line] = field(default_factory=tuple)


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    kind: str
    text: str


def judge(books: Books) -> list[Finding]:
    by_run: dict[str, list[Line]] = defaultdict(list)
    for line in books.lines:
        by_run[line.run].append(line)
    findings = [finding for run in books.runs for finding in _judge_run(run, by_run[run.run])]
    findings += _judge_attempts(books)
    findings += _judge_atomic(books)
    findings += [Finding(kind="stuck", text=text) for text in books.open_rows]
    findings += [Finding(kind="doubled", text=f"a message left over ran a body again: {line}") for line in books.again]
    return findings


# -- one run -----------------------------------------------------------------------------------------------------------


def _judge_run(run: Run, lines: Sequence[Line]) -> Iterator[Finding]:
    name = f"{run.script} {run.run}"
    if not run.states:
        yield Finding(kind="lost", text=f"{name}: there is no instance")
        return
    if len(run.states) > 1:
        yield Finding(kind="doubled", text=f"{name}: {len(run.states)} instances, {', '.join(run.states)}")
        return
    state = run.states[0]
    if state not in FINAL:
        yield Finding(kind="stuck", text=f"{name} is {state}: {run.about}")
        return
    script = SCRIPTS[run.script]
    promise = script.promise(run.args, state)
    if promise is None:
        yield Finding(kind="lost", text=f"{name} ended {state}, which it may not: {run.about}")
        return
    if not promise.result(run.result):
        yield Finding(kind="lost", text=f"{name} has the result {run.result!r}")
    yield from _judge_effects(name, promise, script.single, lines)
    yield from _judge_refunds(name, state, lines)
    if script.heard is not None:
        yield from _judge_messages(name, script.heard(run.result), run.sent, all_heard=script.all_heard)


def _judge_effects(name: str, promise: Promise, single: frozenset[str], lines: Sequence[Line]) -> Iterator[Finding]:
    keys: dict[str, set[str]] = defaultdict(set)
    for line in lines:
        keys[line.what].add(line.key)
    for what in sorted(promise.must - keys.keys()):
        yield Finding(kind="lost", text=f"{name}: {what!r} did not happen")
    for what in sorted(keys.keys() - promise.must - promise.may):
        yield Finding(kind="doubled", text=f"{name}: {what!r} should not have happened")
    for what, found in keys.items():
        if len(found) > 1:
            yield Finding(kind="doubled", text=f"{name}: {what!r} under {len(found)} keys, {', '.join(sorted(found))}")
    for what, count in Counter(line.what for line in lines if line.what in single).items():
        if count > 1:
            yield Finding(kind="doubled", text=f"{name}: {what!r} ran {count} times, at most once was promised")


def _judge_refunds(name: str, state: str, lines: Sequence[Line]) -> Iterator[Finding]:
    done = {line.what for line in lines}
    if state != "COMPLETED":
        for what in ("money", "stock"):
            if what in done and UNDO + what not in done:
                yield Finding(kind="lost", text=f"{name} ended {state}, and {what!r} was not given back")


def _judge_messages(name: str, heard: Sequence[int], sent: Sequence[Sent], *, all_heard: bool) -> Iterator[Finding]:
    """Each once and in order, or its sender was told."""
    messages = [one for one in sent if one.kind in ("signal", "update")]
    accepted = [one.number for one in messages if one.outcome == ACCEPTED and one.answer != CLOSED]
    perhaps = {one.number for one in messages if one.outcome == CLOSED and one.unsure}
    for number, count in Counter(heard).items():
        if count > 1:
            yield Finding(kind="doubled", text=f"{name} heard message {number} {count} times: {heard}")
    for number in sorted({*heard} - {*accepted} - perhaps):
        yield Finding(
            kind="doubled", text=f"{name} heard message {number}, whose sender was told that it came too late"
        )
    for number in sorted({*accepted} - {*heard}):
        yield Finding(kind="lost", text=f"{name} never heard message {number}, which was accepted: {heard}")
    if list(heard) != sorted(heard):
        yield Finding(kind="lost", text=f"{name} heard its messages out of order: {heard}")
    for one in messages:
        if one.kind == "update" and one.answer not in (None, CLOSED) and one.number in heard:
            if one.answer != heard.index(one.number) + 1:
                yield Finding(kind="lost", text=f"{name} answered update {one.number} with {one.answer!r}: {heard}")
        if all_heard and one.outcome == CLOSED:
            yield Finding(kind="lost", text=f"{name} ended before message {one.number} came")


# -- all of them -------------------------------------------------------------------------------------------------------


def _judge_attempts(books: Books) -> Iterator[Finding]:
    """A body runs at most once for each claim, and for no other reason; that of an atomic step also when the database
    has undone its transaction."""
    for (key, attempt), count in Counter((line.key, line.attempt) for line in books.lines if line.attempt).items():
        step = books.steps.get(key)
        if count > 1 and not (step is not None and step.atomic):
            yield Finding(kind="doubled", text=f"attempt {attempt} of {key} ran {count} times")
        if step is None:
            yield Finding(kind="doubled", text=f"{key} ran and is in no journal")
        elif attempt > step.attempt:
            yield Finding(kind="doubled", text=f"{key} ran at attempt {attempt}, its row knows {step.attempt}")


def _judge_atomic(books: Books) -> Iterator[Finding]:
    """What atomic bodies wrote is there exactly as often as their results."""
    for key, step in books.steps.items():
        if not step.atomic:
            continue
        found, wanted = books.effects.get(key, 0), ENTRIES if step.state == "SUCCEEDED" else 0
        if found < wanted:
            yield Finding(kind="lost", text=f"{key} is {step.state} with {found} effects, not {wanted}")
        elif found > wanted:
            yield Finding(kind="doubled", text=f"{key} is {step.state} with {found} effects, not {wanted}")
    for key, count in books.effects.items():
        if key not in books.steps:
            yield Finding(kind="doubled", text=f"{count} effects of {key}, which is in no journal")
