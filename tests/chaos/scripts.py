"""For each workflow: how it is called and what is sent to it, by dice; how it may end, and what it must have done."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

Sends = list[tuple[float, str, int]]  # seconds after the start, kind, number
Made = tuple[tuple[Any, ...], Sends]

COMPLETED, FAILED, CANCELLED = "COMPLETED", "FAILED", "CANCELLED"


@dataclass(frozen=True, slots=True, kw_only=True)
class Promise:
    """How a run may end, by state; what it then must have done and may have done, each under one idempotency key."""

    must: frozenset[str]
    may: frozenset[str] = frozenset()
    result: Callable[[Any], bool] = lambda result: True


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """``promise(args, state)``: None if a run may not end like that. ``heard(result)``: the numbers it took in.

    ``all_heard``: it ends only once it has everything that is sent. ``single``: what is done at most once, whatever
    dies.
    """

    weight: float
    make: Callable[[random.Random], Made]
    promise: Callable[[tuple[Any, ...], str], Promise | None]
    heard: Callable[[Any], list[int]] | None = None
    all_heard: bool = False
    single: frozenset[str] = frozenset()


def completes(must: Callable[..., Iterable[str]], may: Callable[..., Iterable[str]], result: Callable[..., Any]) -> Any:
    """It completes whatever happens, with the ``result(*args)``, if that is not None."""

    def promise(args: tuple[Any, ...], state: str) -> Promise | None:
        if state != COMPLETED:
            return None
        wanted = result(*args)
        return Promise(
            must=frozenset(must(*args)),
            may=frozenset(may(*args)),
            result=lambda found: wanted is None or found == wanted,
        )

    return promise


def nothing(*_: Any) -> tuple[str, ...]:
    return ()


def any_result(*_: Any) -> None:
    return None


def numbers(word: str, count: int) -> list[str]:
    return [f"{word} {number}" for number in range(count)]


def spread(dice: random.Random, kind: str, count: int, seconds: float) -> Sends:
    """So many at random times, in order of their numbers."""
    return [(at, kind, number) for number, at in enumerate(sorted(dice.uniform(0.05, seconds) for _ in range(count)))]


def money(args: tuple[Any, ...], state: str) -> Promise | None:
    """Whoever was charged is served or gets the money back."""
    end, _ = args
    taken, given = {"money", "stock"}, {"undo money", "undo stock"}
    if state == COMPLETED and end != "refuse":
        return Promise(must=frozenset({*taken, "ship"}))
    if state == FAILED and end == "refuse":
        return Promise(must=frozenset({*taken, *given, "refuse"}))
    if state == CANCELLED and end == "cancel":
        return Promise(must=frozenset(), may=frozenset({*taken, *given, "ship"}))
    return None


def lost_or_done(args: tuple[Any, ...], state: str) -> Promise | None:
    if state == COMPLETED:
        return Promise(must=frozenset({"before", "once"}))
    # Its process may have died before the body began.
    return Promise(must=frozenset({"before"}), may=frozenset({"once"})) if state == FAILED else None


def run_of_legs(args: tuple[Any, ...], state: str) -> Promise | None:
    return (
        Promise(must=frozenset(numbers("leg", 4)), may=frozenset(numbers("leg", 400))) if state == COMPLETED else None
    )


def make_collecting(dice: random.Random) -> Made:
    wanted = dice.randint(2, 6)
    return (wanted, dice.choice((1.0, 3.0, 20.0))), spread(dice, "signal", wanted + dice.randint(0, 2), 4)


def make_reading(dice: random.Random) -> Made:
    wanted = dice.randint(1, 6)
    return (wanted, 0.5), spread(dice, "signal", wanted, 5)


def make_updating(dice: random.Random) -> Made:
    wanted = dice.randint(1, 5)
    return (wanted, dice.choice((2.0, 20.0))), spread(dice, "update", wanted + dice.randint(0, 1), 4)


def make_racing(dice: random.Random) -> Made:
    return (dice.uniform(0, 0.4), 0.25), spread(dice, "signal", dice.randint(0, 1), 2)


def make_purchase(dice: random.Random) -> Made:
    end = dice.choice(("ship", "refuse", "cancel"))
    return (end, dice.uniform(0.02, 0.15)), [(dice.uniform(0.05, 2.0), "cancel", 0)] if end == "cancel" else []


def make_marathon(dice: random.Random) -> Made:
    wanted = dice.randint(1, 4)
    return (wanted, [], 0), spread(dice, "signal", wanted, 4)


SCRIPTS: Mapping[str, Script] = {
    "sequence": Script(
        weight=4,
        make=lambda dice: ((dice.randint(2, 4), dice.uniform(0.02, 0.2)), []),
        promise=completes(lambda count, _: [*numbers("step", count), "shaky"], nothing, lambda count, _: count),
    ),
    "fan": Script(
        weight=0.4,
        make=lambda dice: ((50,), []),
        promise=completes(lambda members: [*numbers("member", members), "joined"], nothing, lambda members: members),
    ),
    "mapping": Script(
        weight=0.7,
        make=lambda dice: ((dice.randint(5, 15), dice.randint(3, 10)), []),
        promise=completes(
            lambda members, _: [*numbers("item", members), "joined"], nothing, lambda members, _: members
        ),
    ),
    "racing": Script(
        weight=3,
        make=make_racing,
        promise=completes(lambda *_: ("between", "after"), lambda *_: ("runner",), any_result),
    ),
    "napping": Script(
        weight=3,
        make=lambda dice: ((dice.randint(1, 3), dice.uniform(0.2, 1.5)), []),
        promise=completes(
            lambda naps, _: [*numbers("before", naps), *numbers("after", naps)], nothing, lambda naps, _: naps
        ),
    ),
    "collecting": Script(
        weight=3,
        make=make_collecting,
        promise=completes(lambda *_: ("before", "after"), nothing, any_result),
        heard=list,
    ),
    "reading": Script(
        weight=3,
        make=make_reading,
        promise=completes(lambda *_: ("after",), nothing, any_result),
        heard=list,
        all_heard=True,
    ),
    "updating": Script(
        weight=2,
        make=make_updating,
        promise=completes(lambda *_: ("before",), nothing, any_result),
        heard=list,
    ),
    "family": Script(
        weight=2,
        make=lambda dice: ((dice.randint(1, 3), dice.uniform(0.02, 0.15)), []),
        promise=completes(
            lambda children, _: [
                "aside",
                *(f"{name} {what}" for name in [*numbers("child", children), "last"] for what in ("begins", "ends")),
            ],
            nothing,
            lambda children, _: [f"{name} ends" for name in [*numbers("child", children), "last"]],
        ),
    ),
    "purchase": Script(weight=5, make=make_purchase, promise=money),
    "marathon": Script(
        weight=2, make=make_marathon, promise=run_of_legs, heard=lambda result: list(result[1]), all_heard=True
    ),
    "books": Script(
        weight=3,
        make=lambda dice: ((dice.randint(1, 3), dice.uniform(0, 0.1)), []),
        promise=completes(
            lambda count, _: [*numbers("entry", count), *numbers("told", count), *numbers("side", 2)],
            nothing,
            lambda count, _: count,
        ),
    ),
    "legacy": Script(
        weight=2,
        make=lambda dice: ((dice.uniform(0, 0.15),), []),
        promise=completes(lambda _: ("one", "two", "three", "four", "five"), nothing, lambda _: 4),
    ),
    "careful": Script(
        weight=2,
        make=lambda dice: ((dice.uniform(0.05, 0.3),), []),
        promise=lost_or_done,
        single=frozenset({"once"}),
    ),
}
