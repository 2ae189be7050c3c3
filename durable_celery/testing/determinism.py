"""Finds a body that decides otherwise when it is asked again.

Rules of this file:
- Each decision of a turn is taken twice from scratch, from the same journal, and both must agree to the last argument.
- A journal can also be replayed by itself: the body must ask for what stands there, with the arguments recorded.
"""

from __future__ import annotations

import functools
import inspect
import logging
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from durable_celery import codec
from durable_celery.core import complaints, scope, transitions
from durable_celery.core import generator as generators
from durable_celery.core.decision import Decision, Opening
from durable_celery.core.journal import Journal
from durable_celery.errors import NonDeterminism

Body = Callable[..., Any]
Take = Callable[..., Decision]  # (journal, wrap=...)

ADVICE = (
    "A body must decide the same each time it is replayed. Usual causes: the order of a set, the clock, dice, a "
    "global, the environment. Sort the set, use durable_celery.now(), random(), uuid4() or side_effect(), or move it "
    "into a step"
)


def decide_twice(take: Take, journal: Journal) -> Decision:
    """The decision, taken twice; ``NonDeterminism`` with position and line if the second one is another.

    The second sees the markers of the first: what ``side_effect`` and ``patched`` gave is recorded, not made again.
    """
    first = take(journal)
    known = replace(journal, markers={**journal.markers, **first.markers})
    with _no_logging():
        second = take(known)
        if (found := _difference(first, second)) is None:
            return first
        position, one, other = found
        line = _line(take, known, position)
    raise NonDeterminism(
        f"the body of instance {journal.instance_id} is not deterministic: at position {position or '-'} "
        f"({line or 'at its end'}) it asks for {one}, and asked again, for {other}. {ADVICE}",
        instance_id=journal.instance_id, position=position, recorded=one, requested=other,
    )  # fmt: skip


def _difference(first: Decision, second: Decision) -> tuple[str, str, str] | None:
    """Position, and what either asks for; None if they agree."""
    ours = {opening.position: opening for opening in first.openings}
    theirs = {opening.position: opening for opening in second.openings}
    for position in dict.fromkeys([*ours, *theirs]):
        if ours.get(position) != theirs.get(position):
            one, other = _words(ours.get(position)), _words(theirs.get(position))
            return (position, *_told_apart(one, other, ours.get(position), theirs.get(position)))
    for one, other in zip(_rest(first), _rest(second), strict=True):
        if one != other:
            return "", f"{first.state} with {one}", f"{second.state} with {other}"
    return None


def _words(opening: Opening | None) -> str:
    if opening is None:
        return "nothing"
    return complaints.command_words(opening.kind, opening.name, opening.members)


def _told_apart(one: str, other: str, ours: Opening | None, theirs: Opening | None) -> tuple[str, str]:
    """With the first field that differs, where the names do not tell."""
    if ours is None or theirs is None or one != other:
        return one, other
    name = next(name for name in Opening.__slots__ if getattr(ours, name) != getattr(theirs, name))
    return f"{one} with {name} {getattr(ours, name)}", f"{other} with {name} {getattr(theirs, name)}"


def _rest(decision: Decision) -> tuple[Any, ...]:
    return (
        decision.state, _text(decision.value), decision.failure.type if decision.failure else "",
        decision.withdrawn, [closing.position for closing in decision.closings], decision.status_text,
        dict(decision.attributes), dict(decision.taken_entries), dict(decision.taken_messages),
        dict(decision.answers), list(decision.rejected),
    )  # fmt: skip


def _text(value: Any) -> str:
    try:
        return codec.encode(value, root="result")
    except Exception:  # noqa: BLE001 - the turn itself says what is wrong with it
        return ""


# -- the line ----------------------------------------------------------------------------------------------------------


def _line(take: Take, journal: Journal, position: str) -> str:
    """Where the body yields what stands at this position; each yield takes one number."""
    lines: list[str] = []
    take(journal, wrap=lambda body: watched(body, lambda ordinal, yielded, line: lines.append(line)))
    first = position.partition(".")[0]
    return lines[int(first) - 1] if first.isdigit() and 0 < int(first) <= len(lines) else ""


def watched(body: Body, see: Callable[[int, Any, str], object]) -> Body:
    """The body; ``see`` is told of each command opened for it: its number, what was yielded and the line."""

    @functools.wraps(body)
    def watch(*args: Any, **kwargs: Any) -> Any:
        made = body(*args, **kwargs)
        return _followed(made, see) if inspect.isgenerator(made) else made

    return watch


def _followed(body: Generator[Any, Any, Any], see: Callable[[int, Any, str], object]) -> Generator[Any, Any, Any]:
    run = scope.required("replaying a body", "replay its journal")
    go_on: Callable[[], Any] = functools.partial(next, body)
    while True:
        try:
            yielded = go_on()
        except StopIteration as end:
            return end.value
        before, line = run.ordinals, generators.where(body)
        try:
            go_on = functools.partial(body.send, (yield yielded))
        except GeneratorExit:
            body.close()
            raise
        except BaseException as error:  # noqa: BLE001 - whatever is thrown in is for the body
            go_on = functools.partial(body.throw, error)
        finally:
            if run.ordinals > before:  # a cancel may have been thrown in its place
                see(run.ordinals, yielded, line)


@contextmanager
def _no_logging() -> Iterator[None]:
    """A second look is none that a log should tell of."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(before)


def is_mismatch(decision: Decision) -> bool:
    """Whether the body did not fit its journal."""
    named = decision.failure.type if decision.failure is not None else ""
    return decision.state == transitions.BLOCKED and named.endswith(".NonDeterminism")
