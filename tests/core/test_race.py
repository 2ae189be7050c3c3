"""What a race opens, who wins it, and what becomes of the others."""

from __future__ import annotations

from typing import Any

import pytest

from durable_celery import CancelRequested, Signal, StepFailed, Winner, Workflow, gather, race, shield, sleep
from durable_celery.core.commands import Command
from tests.core.driver import Driver, a, b, c, shown

go = Signal("go")
stop = Signal("stop")


def test_the_first_to_end_wins_and_the_others_are_given_up() -> None:
    def body() -> Workflow[Any]:
        winner = yield from race(paid=a(), late=sleep(60))
        return winner.name, winner.value

    run = Driver(body)
    assert shown(run.turn()) == [
        "open race at 1 SCHEDULED",
        "open step core.a at 1.0 SCHEDULED in 1",
        "open timer at 1.1 SCHEDULED in 1",
        "WAITING race at 1: the first of step core.a at 1.0, sleep at 1.1 until 2026-11-01 08:31:00 UTC",
    ]
    run.succeed("1.0", 5)

    assert shown(run.turn()) == ['end 1 SUCCEEDED "paid"', "give up 1.1", "take 2", "COMPLETED ('paid', 5)"]
    assert run.states() == {"1": "SUCCEEDED", "1.0": "SUCCEEDED", "1.1": "CANCELLED"}


def test_members_by_position_are_named_by_their_index_and_a_winner_unpacks() -> None:
    def body() -> Workflow[Any]:
        winner = yield from race(a(), b())
        assert winner == Winner(1, "second")
        name, value = winner
        return name, value

    run = Driver(body)
    run.turn()
    run.succeed("1.1", "second")
    assert run.turn().value == (1, "second")


def test_a_failure_that_comes_first_is_raised_and_ends_the_race() -> None:
    def body() -> Workflow[Any]:
        try:
            yield from race(a(), b())
        except StepFailed as error:
            return error.position

    run = Driver(body)
    run.turn()
    run.fail("1.1")

    assert shown(run.turn()) == ["end 1 FAILED 1", "give up 1.0", "take 3", "COMPLETED '1.1'"]


def test_a_claimed_loser_is_abandoned_and_its_end_is_no_news() -> None:
    def body() -> Workflow[Any]:
        winner = yield from race(a(), sleep(10))
        yield from c()
        return winner.name

    run = Driver(body)
    run.turn()
    run.claim("1.0")
    run.pass_time(10)
    assert shown(run.turn()) == [
        "open step core.c at 2 SCHEDULED", "end 1.1 SUCCEEDED", "end 1 SUCCEEDED 1", "give up 1.0", "take 3",
        "WAITING step core.c at 2",
    ]  # fmt: skip
    assert run.states()["1.0"] == "ABANDONED"
    run.succeed("1.0", "too late")
    assert not run.has_news()
    run.succeed("2")

    assert run.turn().value == 1


def test_of_two_ends_in_one_turn_the_earlier_wins_also_on_replay() -> None:
    def body() -> Workflow[Any]:
        winner = yield from race(a(), b())
        yield from c()
        return winner.value

    run = Driver(body)
    run.turn()
    run.succeed("1.1", "b")
    run.succeed("1.0", "a")
    run.turn()
    assert run.states()["1.0"] == "SUCCEEDED"
    run.succeed("2")

    assert run.turn().value == "b"


def test_what_settles_on_opening_wins_and_nothing_after_it_is_opened() -> None:
    def body() -> Workflow[Any]:
        yield from a()
        winner = yield from race(b(), go.wait(), c())
        yield from sleep(1)
        return winner.name, winner.value

    run = Driver(body)
    run.turn()
    run.signal("go", 7)
    run.succeed("1")
    assert shown(run.turn()) == [
        "open race at 2 SCHEDULED",
        "open step core.b at 2.0 SCHEDULED in 2",
        "open signal go at 2.1 SCHEDULED in 2",
        "open timer at 3 SCHEDULED",
        "end 2.1 SUCCEEDED 7",
        "end 2 SUCCEEDED 1",
        "give up 2.0",
        "take message 1",
        "take 1",
        "WAITING sleep at 3 until 2026-11-01 08:30:02 UTC",
    ]
    run.pass_time(5)

    assert run.turn().value == (1, 7)


def test_races_and_gathers_nest() -> None:
    def body() -> Workflow[Any]:
        first, second = yield from gather(race(a(), gather(b(), b())), race(x=c(), y=sleep(100)))
        return first.name, first.value, second.name

    run = Driver(body)
    run.turn()
    run.succeed("1.0.1.0", "b0")
    run.turn()
    run.succeed("1.1.0")
    run.turn()
    run.succeed("1.0.1.1", "b1")

    assert run.turn().value == (1, ("b0", "b1"), "x")
    assert run.states()["1.0.0"] == "CANCELLED"


# -- messages of losers --------------------------------------------------------------------------------------------


def test_messages_a_loser_had_taken_go_back_in_order() -> None:
    def body() -> Workflow[Any]:
        yield from race(gather(go.wait(), go.wait(), a()), sleep(10))
        got = []
        for _ in range(4):
            got.append((yield from go.wait(timeout=0, default=None)))
        return got

    run = Driver(body)
    run.turn()
    for number in (1, 2, 3):
        run.signal("go", number)
        run.turn()
    run.pass_time(10)
    run.turn()

    assert run.turn().value == [1, 2, 3, None]


def test_a_message_given_back_goes_to_the_wait_that_is_open() -> None:
    def body() -> Workflow[Any]:
        first, second = yield from gather(race(gather(go.wait(), a()), b()), go.wait())
        return first.value, second

    run = Driver(body)
    run.turn()
    run.signal("go", "only one")
    run.turn()
    assert run.states()["1.0.0.0"] == "SUCCEEDED"
    run.succeed("1.0.1", "b")

    assert run.turn().value == ("b", "only one")


def test_a_message_given_back_may_settle_what_stands_above_both() -> None:
    def body() -> Workflow[Any]:
        winner = yield from race(gather(race(gather(go.wait(), a()), b()), c()), go.wait())
        rest = yield from go.wait(timeout=0, default="none left")
        return winner.name, winner.value, rest

    run = Driver(body)
    run.turn()
    run.signal("go", "m")
    run.turn()
    run.succeed("1.0.0.1")
    run.turn()

    assert run.turn().value == (1, "m", "none left")


def test_a_needed_gather_gives_back_what_its_losers_had_taken() -> None:
    def body() -> Workflow[Any]:
        yield from gather(gather(go.wait(), a()), b(), needed=1)
        return (yield from go.wait())

    run = Driver(body)
    run.turn()
    run.signal("go", 1)
    run.turn()
    run.succeed("1.1")

    assert run.turn().value == 1


def test_what_the_winner_took_stays_taken() -> None:
    def body() -> Workflow[Any]:
        winner = yield from race(gather(go.wait(), a()), b())
        return winner.value, (yield from go.wait(timeout=0, default="none"))

    run = Driver(body)
    run.turn()
    run.signal("go", 1)
    run.succeed("1.0.1", "a")
    run.turn()

    assert run.turn().value == ((1, "a"), "none")


# -- cancelling ----------------------------------------------------------------------------------------------------


def cancelled(members: Any, *, claim: str = "") -> tuple[Driver, list[str]]:
    def body() -> Workflow[Any]:
        winner = yield from race(*members())
        yield from b(winner.value)

    run = Driver(body)
    run.turn()
    if claim:
        run.claim(claim)
    run.cancel("why")
    return run, shown(run.turn())


def test_a_cancel_gives_up_all_members_that_nobody_has_claimed() -> None:
    run, told = cancelled(lambda: [a(), sleep(5)])

    assert told == [
        "give up 1.0", "give up 1.1", "give up 1", "take message 1", "mark cancel:1 []", "CANCELLED Cancelled: why",
    ]  # fmt: skip
    assert set(run.states().values()) == {"CANCELLED"}


@pytest.mark.parametrize("ends_well", [True, False])
def test_a_claimed_member_may_still_win_and_then_the_cancel_is_thrown(ends_well: bool) -> None:
    values: list[Any] = []

    def body() -> Workflow[Any]:
        try:
            values.append((yield from race(a(), sleep(5))).value)
            yield from b()
        except CancelRequested:
            values.append("cancelled")
            raise

    run = Driver(body, twice=False)
    run.turn()
    run.claim("1.0")
    run.cancel("why")
    assert shown(run.turn())[-2:][0] == 'mark cancel:1 ["1.0"]'
    assert run.states() == {"1": "SCHEDULED", "1.0": "RUNNING", "1.1": "CANCELLED"}
    values.clear()
    if ends_well:
        run.succeed("1.0", 5)
    else:
        run.fail("1.0")

    assert shown(run.turn())[-1] == "CANCELLED Cancelled: why"
    assert values == ([5, "cancelled"] if ends_well else ["cancelled"])
    assert "2" not in run.entries


def test_a_shielded_member_is_waited_for() -> None:
    run, _ = cancelled(lambda: [shield(a()), sleep(5)])
    assert run.states() == {"1": "SCHEDULED", "1.0": "SCHEDULED", "1.1": "CANCELLED"}
    run.succeed("1.0", 5)

    assert shown(run.turn())[-1] == "CANCELLED Cancelled: why"


# -- what does not fit -----------------------------------------------------------------------------------------------


def wrongly(make: Any) -> str:
    def body() -> Workflow[Any]:
        yield from make()

    return Driver(body).turn().waiting


def test_a_race_of_nothing_is_refused() -> None:
    assert "race takes at least one command" in wrongly(race)


def test_by_position_and_by_name_at_once_is_refused() -> None:
    assert "either by position or by name" in wrongly(lambda: race(a(), x=b()))  # type: ignore[call-overload]


def test_a_list_or_a_helper_generator_is_no_member() -> None:
    def helper() -> Any:
        yield from a()

    assert "unpack it: race(*commands)" in wrongly(lambda: race([a()]))  # type: ignore[call-overload]
    assert "race member 1 is a generator" in wrongly(lambda: race(a(), helper()))


def test_other_members_than_recorded_block() -> None:
    members: list[Any] = [a, b]

    def body() -> Workflow[Any]:
        yield from race(*[member() for member in members])

    run = Driver(body)
    run.turn()
    members.append(c)
    assert "recorded is race of 2 members, the body now asks for race of 3 members" in run.turn().waiting
    members[:] = [a, c]
    assert "recorded is step core.b, the body now asks for step core.c" in run.turn().waiting


def test_a_member_is_yielded_once() -> None:
    def body() -> Workflow[Any]:
        command: Command[Any] = a()
        yield from race(command, command)

    assert "is yielded twice" in Driver(body).turn().waiting
