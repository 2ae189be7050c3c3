"""Every order in which up to four members can end, with every choice of failures, against the rule written anew."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations, permutations
from typing import Any

import pytest

from durable_celery import StepFailed, Workflow, gather
from durable_celery.core import transitions
from tests.core.driver import Driver, a

MEMBERS = range(1, 5)


@dataclass(frozen=True)
class Case:
    """Members 0 to ``count - 1`` end in ``order``; those in ``failing`` with an error."""

    count: int
    order: tuple[int, ...]
    failing: frozenset[int]


def cases() -> Iterator[Case]:
    for count in MEMBERS:
        for order in permutations(range(count)):
            for size in range(count + 1):
                for failing in combinations(range(count), size):
                    yield Case(count, order, frozenset(failing))


def variants(count: int) -> list[dict[str, Any]]:
    return [
        {},
        {"return_exceptions": True},
        *({"tolerate": tolerate} for tolerate in range(1, count + 1)),
        {"tolerate": 1, "return_exceptions": True},
        *({"needed": needed} for needed in range(1, count + 1)),
        {"needed": 1, "tolerate": 1},
    ]


def expected(case: Case, rules: dict[str, Any]) -> tuple[int, Any]:
    """After how many ends the gather is over, and what the body gets: the rule, from the words of the documentation."""
    good: set[int] = set()
    bad: set[int] = set()
    needed = rules.get("needed")
    for ends, member in enumerate(case.order, start=1):
        (bad if member in case.failing else good).add(member)
        enough = needed is not None and len(good) >= needed
        hopeless = needed is not None and case.count - len(bad) < needed
        everyone = ends == case.count
        if not (enough or hopeless or everyone):
            continue
        forgiven = (
            enough or bool(rules.get("return_exceptions")) or (not hopeless and len(bad) <= rules.get("tolerate", 0))
        )
        if forgiven:
            return ends, tuple(f"v{m}" if m in good else f"e{m}" if m in bad else None for m in range(case.count))
        results = [f"v{m}" if m in good else None for m in range(case.count)]
        errors = [f"e{m}" if m in bad else None for m in range(case.count)]
        return ends, (f"e{min(bad)}", results, errors)
    raise AssertionError


def named(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return type(value)(named(each) for each in value)
    return f"e{value.position[2:]}" if isinstance(value, StepFailed) else value


def body_of(count: int, rules: dict[str, Any]) -> Any:
    def body() -> Workflow[Any]:
        try:
            value = named((yield from gather(*[a(member) for member in range(count)], **rules)))
        except StepFailed as error:
            value = (named(error), named(error.results), named(error.errors))
        yield from a("after")
        return value

    return body


def end(run: Driver, member: int, case: Case) -> None:
    if member in case.failing:
        run.fail(f"1.{member}")
    else:
        run.succeed(f"1.{member}", f"v{member}")


@pytest.mark.parametrize("together", [False, True], ids=["a turn an outcome", "all in one turn"])
def test_every_order_and_every_choice_of_failures_follows_the_rule(together: bool) -> None:
    tried = 0
    for case in cases():
        for rules in variants(case.count):
            run = Driver(body_of(case.count, rules), twice=False)
            run.turn()
            ends, value = expected(case, rules)
            for number, member in enumerate(case.order, start=1):
                if not together and number > ends:
                    assert run.entries[f"1.{member}"].state == transitions.CANCELLED, (case, rules)
                    continue
                end(run, member, case)
                if not together:
                    run.turn()
                    assert ("2" in run.entries) is (number >= ends), (case, rules)
            if together:
                run.turn()
            rest = case.order[ends:]
            assert sorted(run.decisions[-1].withdrawn) == sorted(f"1.{m}" for m in rest), (case, rules)
            taken = [pk for decision in run.decisions for pk in decision.taken_entries]
            assert taken == [run.entries[f"1.{m}"].id for m in case.order[:ends]], (case, rules)
            run.succeed("2")
            assert run.turn().value == value, (case, rules)
            tried += 1

    assert tried == sum(_factorial(n) * 2**n * (4 + 2 * n) for n in MEMBERS)


def _factorial(n: int) -> int:
    return 1 if n == 0 else n * _factorial(n - 1)


# -- with a limit --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Model:
    """A gather with a limit as a person would keep it on paper. ``ends`` are (member, whether it failed) so far."""

    count: int
    limit: int
    ends: tuple[tuple[int, bool], ...] = ()
    forgiving: bool = False
    tolerate: int = 0

    @property
    def started(self) -> list[int]:
        """Members that have started, in order: the limit at once, one more at each end that does not stop it."""
        started = list(range(min(self.limit, self.count)))
        failed = 0
        for _, bad in self.ends:
            failed += bad
            if len(started) < self.count and (self.forgiving or failed <= self.tolerate):
                started.append(len(started))
        return started

    @property
    def running(self) -> list[int]:
        return [m for m in self.started if m not in {member for member, _ in self.ends}]

    @property
    def value(self) -> Any:
        bad = {member for member, failed in self.ends if failed}
        good = {member for member, failed in self.ends if not failed}
        if self.forgiving or len(bad) <= self.tolerate:
            return tuple(f"v{m}" if m in good else f"e{m}" for m in range(self.count))
        results = [f"v{m}" if m in good else None for m in range(self.count)]
        return f"e{min(bad)}", results, [f"e{m}" if m in bad else None for m in range(self.count)]


def endings(model: Model) -> Iterator[Model]:
    """Every way it can go to its end."""
    if not model.running:
        yield model
        return
    for member in model.running:
        for failed in (False, True):
            further = Model(model.count, model.limit, (*model.ends, (member, failed)), model.forgiving, model.tolerate)
            yield from endings(further)


@pytest.mark.parametrize("rules", [{}, {"return_exceptions": True}, {"tolerate": 1}], ids=str)
@pytest.mark.parametrize("one_by_one", [False, True], ids=["rows held back", "opened one by one"])
def test_every_way_through_a_limited_gather_follows_the_rule(rules: dict[str, Any], one_by_one: bool) -> None:
    for count, limit in ((1, 1), (2, 1), (3, 1), (3, 2), (4, 2), (4, 3)):
        start = Model(count, limit, forgiving="return_exceptions" in rules, tolerate=rules.get("tolerate", 0))
        for ending in endings(start):
            go_through(ending, rules, one_by_one=one_by_one)


def go_through(ending: Model, rules: dict[str, Any], *, one_by_one: bool) -> None:
    count, limit = ending.count, ending.limit

    def body() -> Workflow[Any]:
        members = [a(member) for member in range(count)] + ([gather()] if one_by_one else [])
        try:
            value = named((yield from gather(*members, limit=limit, **rules)))
        except StepFailed as error:
            value = (named(error), named(error.results), named(error.errors))
        yield from a("after")
        return value

    run = Driver(body, twice=False)
    run.turn()
    for number, (member, failed) in enumerate(ending.ends):
        sofar = Model(count, limit, ending.ends[:number], ending.forgiving, ending.tolerate)
        assert run.open_steps() == [f"1.{m}" for m in sofar.running], (ending, rules)
        end(run, member, Case(count, (), frozenset({member} if failed else ())))
        run.turn()
    assert "2" in run.entries, (ending, rules)
    started = [f"1.{m}" for m in ending.started]
    assert [p for p, e in run.entries.items() if e.attempt] == started, (ending, rules)
    run.succeed("2")
    value = run.turn().value
    assert (without_last(value) if one_by_one else value) == ending.value, (ending, rules)


def without_last(value: Any) -> Any:
    """The value without the place of the empty gather at the end."""
    if isinstance(value[1], list):
        return value[0], value[1][:-1], value[2][:-1]
    return value[:-1]
