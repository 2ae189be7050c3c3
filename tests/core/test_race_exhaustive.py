"""Every order in which up to four members can end, with every choice of failures, against the rule written anew."""

from __future__ import annotations

from itertools import combinations, permutations
from typing import Any

import pytest

from durable_celery import StepFailed, Winner, Workflow, gather, race
from durable_celery.core import transitions
from tests.core.driver import Driver, a, b

MEMBERS = range(1, 5)


def body_of(count: int, *, named: bool) -> Any:
    def body() -> Workflow[Any]:
        members = [a(member) for member in range(count)]
        try:
            value: Any = yield from (race(**{f"m{n}": m for n, m in enumerate(members)}) if named else race(*members))
        except StepFailed as error:
            value = error.position
        yield from b("after")
        return value

    return body


def expected(first: int, failing: tuple[int, ...], *, named: bool) -> Any:
    return f"1.{first}" if first in failing else Winner(f"m{first}" if named else first, f"v{first}")


def end(run: Driver, member: int, failing: tuple[int, ...]) -> None:
    if member in failing:
        run.fail(f"1.{member}")
    else:
        run.succeed(f"1.{member}", f"v{member}")


@pytest.mark.parametrize("named", [False, True], ids=["by position", "by name"])
@pytest.mark.parametrize("claimed", [False, True], ids=["unclaimed", "all claimed"])
@pytest.mark.parametrize("together", [1, 2, 3, 4], ids="{} in the first turn".format)
def test_every_order_and_every_choice_of_failures_follows_the_rule(named: bool, claimed: bool, together: int) -> None:
    """``together`` members have ended when the turn comes; claimed ones that lose end after it, for nobody."""
    tried = 0
    for count in MEMBERS:
        for order in permutations(range(count)):
            for size in range(count + 1):
                for failing in combinations(range(count), size):
                    go_through(count, order, failing, named=named, claimed=claimed, together=together)
                    tried += 1
    assert tried == 2 + 2 * 4 + 6 * 8 + 24 * 16


def go_through(
    count: int, order: tuple[int, ...], failing: tuple[int, ...], *, named: bool, claimed: bool, together: int
) -> None:
    case = (order, failing)
    run = Driver(body_of(count, named=named), twice=claimed)
    run.turn()
    for member in range(count) if claimed else ():
        run.claim(f"1.{member}")
    for member in order[:together]:
        end(run, member, failing)
    decision = run.turn()

    assert decision.taken_entries == {run.entries[f"1.{order[0]}"].id: 0}, case
    assert decision.withdrawn == tuple(f"1.{member}" for member in range(count) if member != order[0]), case
    assert run.states()["1"] == (transitions.FAILED if order[0] in failing else transitions.SUCCEEDED), case
    for member in order[together:]:
        state = transitions.ABANDONED if claimed else transitions.CANCELLED
        assert run.states()[f"1.{member}"] == state, case
        if claimed:
            end(run, member, failing)
            assert not run.has_news(), case
    run.succeed("2")
    assert run.turn().value == expected(order[0], failing, named=named), case
    assert not run.decide(recorded_only=True).openings, case


@pytest.mark.parametrize("where", ["first", "last"])
def test_every_way_through_a_race_of_a_gather_and_a_step_follows_the_rule(where: str) -> None:
    """A gather of two against two steps: it wins when both have ended before any step, or fails, before any step."""
    gathered = 0 if where == "first" else 2
    places = [f"1.{gathered}.0", f"1.{gathered}.1", *(f"1.{m}" for m in range(3) if m != gathered)]

    def body() -> Workflow[Any]:
        members: list[Any] = [a(), a()]
        members.insert(gathered, gather(b(), b()))
        try:
            winner = yield from race(*members)
        except StepFailed as error:
            return error.position
        return winner.name, winner.value

    for order in permutations(places):
        for size in range(5):
            for failing in combinations(places, size):
                run = Driver(body, twice=False)
                run.turn()
                for place in order:
                    if not run.open:
                        break
                    run.end([place], lambda e: ValueError() if e.position in failing else e.position)  # noqa: B023
                    run.turn()
                assert run.value == winner_of(order, failing, gathered), (order, failing)


def winner_of(order: tuple[str, ...], failing: tuple[str, ...], gathered: int) -> Any:
    ended: list[str] = []
    for place in order:
        if place.count(".") == 1:
            return place if place in failing else (int(place[2:]), place)
        ended.append(place)
        if len(ended) == 2:
            both = tuple(sorted(ended))
            bad = [each for each in both if each in failing]
            return bad[0] if bad else (gathered, both)
    raise AssertionError
