"""What a fork takes from a journal, and where a replacement stands in the order of outcomes; all of it pure."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from durable_celery import Signal, Workflow, codec, gather, sleep, spawn
from durable_celery.core import forking, identity
from durable_celery.core.forking import GIVEN_UP, KEPT, OPEN, Fork, fork_before
from durable_celery.core.skipping import Replacement, replacement
from durable_celery.errors import BadValue, NotRetryable
from tests.core.driver import Driver, a, b, c

go = Signal("go")


def fork(run: Driver, position: str) -> Fork:
    return fork_before(
        position, run.body, run.args, {}, run.journal(),
        turn=run.turns + 1, now=run.now, started_at=run.started_at, decode=codec.decode,
        encode=lambda value, root: codec.encode(value, root=root), info=SimpleNamespace(name="core.workflow"),
    )  # fmt: skip


def three() -> Workflow[Any]:
    yield from a()
    yield from b()
    yield from go.wait()
    yield from c()


@pytest.fixture
def played() -> Driver:
    run = Driver(three)
    run.turn()
    for position in ("1", "2"):
        run.succeed(position, 1)
        run.turn()
    run.signal("go", "payload")
    run.turn()
    run.succeed("4", 1)
    run.turn()
    assert run.state == "COMPLETED"
    return run


def test_before_the_first_yield_nothing_is_taken(played: Driver) -> None:
    plan = fork(played, "1")
    assert (plan.turn, plan.turn_at, plan.news) == (0, None, None)
    assert not plan.rows
    assert not plan.messages


@pytest.mark.parametrize(
    ("position", "turn", "rows", "messages", "news"),
    [
        ("2", 1, {"1": OPEN}, set(), None),
        ("3", 2, {"1": KEPT, "2": OPEN}, set(), None),
        ("4", 3, {"1": KEPT, "2": KEPT, "3": OPEN}, set(), 1),
        ("4.2.1", 3, {"1": KEPT, "2": KEPT, "3": OPEN}, set(), 1),
    ],
)
def test_the_last_outcome_is_new_and_all_before_it_kept(
    played: Driver, position: str, turn: int, rows: dict[str, str], messages: set[int], news: int | None
) -> None:
    plan = fork(played, position)
    assert (plan.turn, dict(plan.rows), set(plan.messages), plan.news) == (turn, rows, messages, news)


def test_work_beside_the_body_is_open_and_what_was_given_up_stays_so() -> None:
    def body() -> Workflow[Any]:
        kept = yield from spawn(a())
        lost = yield from spawn(b())
        yield from lost.cancel()
        yield from c()
        yield from c()
        yield from kept

    run = Driver(body)
    run.turn()
    run.succeed("4")
    run.turn()
    run.succeed("1.0")
    run.succeed("5")
    run.turn()
    plan = fork(run, "5")
    assert dict(plan.rows) == {"1": OPEN, "1.0": OPEN, "2": GIVEN_UP, "2.0": GIVEN_UP, "4": OPEN}


def test_rows_opened_later_below_an_earlier_yield_are_not_part_of_it() -> None:
    def body() -> Workflow[Any]:
        yield from spawn(gather(a(), sleep(1), limit=1))
        yield from b()
        yield from c()

    run = Driver(body)
    run.turn()
    run.succeed("2")
    run.turn()
    run.succeed("1.0.0")
    run.turn()
    assert "1.0.1" in run.entries
    assert "1.0.1" not in fork(run, "3").rows


def test_what_was_never_reached_is_refused(played: Driver) -> None:
    with pytest.raises(BadValue, match="never came to position 5; it asked for 4 commands so far"):
        fork(played, "5")
    for wrong in ("", "x", "1~", "1!1", "01", "1.", None, 1):
        with pytest.raises(BadValue, match="is not allowed"):
            forking.ordinal_of(wrong)


def test_markers_of_a_cancel_follow_its_message() -> None:
    assert forking.renamed("cancel:7", {7: 12}) == "cancel:12"
    assert forking.renamed("patch:7", {7: 12}) == "patch:7"
    assert forking.renamed("cancel:x", {7: 12}) == "cancel:x"


# -- the place of a replacement ----------------------------------------------------------------------------------------


def blocked(before: Callable[..., Any], after: Callable[..., Any], *ends: str) -> tuple[Driver, dict[str, Any]]:
    bodies = [before]

    def body() -> Workflow[Any]:
        return (yield from bodies[0]())

    run = Driver(body)
    run.turn()
    for position in ends:
        run.succeed(position, 1)
        run.turn()
    bodies[0] = after
    run.signal("wake up")
    decision = run.turn()
    assert decision.state == "BLOCKED"
    assert decision.failure is not None
    return run, decision.failure.attributes


def second_is_c() -> Workflow[Any]:
    yield from a()
    yield from c()
    yield from go.wait()


def test_it_takes_the_moment_of_what_was_taken_in() -> None:
    run, sides = blocked(three, second_is_c, "1", "2")
    place = replacement("2", sides, run.journal())
    old = run.entries["2"]
    assert place == Replacement(
        position="2", kind="step", name="core.c", aside="2!1", taken_turn=old.taken_turn, taken_order=old.taken_order,
        taken_at=old.taken_at,
    )  # fmt: skip


def test_it_is_news_where_the_run_waits_still() -> None:
    run, sides = blocked(three, second_is_c, "1")
    assert replacement("2", sides, run.journal()).taken_turn is None


def test_it_comes_right_behind_the_last_outcome_where_there_was_none_of_its_own() -> None:
    def in_a_gather() -> Workflow[Any]:
        yield from a()
        yield from gather(b(), b())
        yield from go.wait()

    run, sides = blocked(in_a_gather, second_is_c, "1", "2.0", "2.1")
    place = replacement("2", sides, run.journal())
    first = run.entries["1"]
    assert (place.taken_turn, place.taken_order, place.makes_room) == (first.taken_turn, first.taken_order + 1, True)
    assert place.taken_at == first.taken_at


def test_what_asks_for_no_single_row_is_refused() -> None:
    def side_by_side() -> Workflow[Any]:
        yield from a()
        yield from gather(b(), c())

    run, sides = blocked(three, side_by_side, "1")
    with pytest.raises(NotRetryable, match="one result cannot stand for that"):
        replacement("2", sides, run.journal())


def test_positions_set_aside_stand_behind_what_took_their_place() -> None:
    ordered = ["1", "2", "2!1", "2!1.0", "2!2", "2.0", "2.0!1", "2.1", "3", "3~", "2!1~", "2~"]
    shuffled = sorted(ordered)
    assert sorted(shuffled, key=identity.sort_key)[:9] == ordered[:9]
    assert [identity.ordinal_of(position) for position in ("2", "2.0", "2!1.0", "2~", "2!1~")] == [2] * 5
    assert not any(map(identity.is_position, ("2!1", "2~", "", "0", "a", "1.", "1..2", "01")))
