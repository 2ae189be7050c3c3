"""Gathers that forgive failures, rules that were recorded, and wrong ones."""

from __future__ import annotations

from typing import Any, cast

import pytest

from durable_celery import Signal, UsageError, Workflow, gather, poll, race, sleep
from tests.core.bodies import fails, gathers, plain
from tests.core.driver import BEGIN, Driver, a, b, c

# -- needed and tolerate -------------------------------------------------------------------------------------------


def test_enough_successes_end_a_gather_and_give_the_rest_up() -> None:
    run = Driver(gathers(lambda: gather(a(), b(), sleep(5), Signal("go").wait(), gather(c()), needed=1)))
    run.turn()
    run.succeed("1.1", "B")
    decision = run.turn()

    assert decision.value == (None, "B", None, None, None)
    assert decision.withdrawn == ("1.0", "1.2", "1.3", "1.4.0", "1.4")
    assert run.states() == {
        "1": "SUCCEEDED",
        "1.0": "CANCELLED",
        "1.1": "SUCCEEDED",
        "1.2": "CANCELLED",
        "1.3": "CANCELLED",
        "1.4": "CANCELLED",
        "1.4.0": "CANCELLED",
    }


def goes_on(make: Any) -> Any:
    def body() -> Workflow[Any]:
        value = yield from make()
        yield from c()
        more = yield from Signal("go").wait()
        return plain(value), more

    return body


def test_an_outcome_of_a_row_given_up_is_never_seen() -> None:
    run = Driver(goes_on(lambda: gather(a(), b(), Signal("go").wait(), needed=1)))
    run.turn()
    run.claim("1.0")
    run.succeed("1.1", "B")
    run.turn()
    assert run.states()["1.0"] == "ABANDONED"
    run.succeed("1.0", "too late")
    assert not run.has_news()
    run.signal("go", "for the second wait")
    run.succeed("2")

    assert run.turn().value == ((None, "B", None), "for the second wait")


def test_outcomes_in_the_turn_that_gives_their_rows_up_are_not_taken_in() -> None:
    run = Driver(goes_on(lambda: gather(a(), b(), sleep(3), needed=1)))
    run.turn()
    run.succeed("1.1", "B")
    run.succeed("1.0", "a second later")
    run.pass_time(5)
    decision = run.turn()

    assert decision.taken_entries == {3: 0}
    assert decision.withdrawn == ("1.0", "1.2")
    assert run.states()["1.0"] == "SUCCEEDED"
    assert not run.has_news()
    run.succeed("2")
    run.signal("go", 5)
    assert run.turn().value == ((None, "B", None), 5)


def test_too_few_successes_raise_as_soon_as_it_is_certain() -> None:
    run = Driver(gathers(lambda: gather(a(), b(), c(), needed=2)))
    run.turn()
    run.fail("1.2")
    assert run.turn().state == "WAITING"
    run.fail("1.0")

    assert run.turn().value == ("1.0", [None, None, None], ["!1.0", None, "!1.2"])
    assert run.states()["1.1"] == "CANCELLED"


def test_tolerated_failures_stand_in_their_places_and_stop_nothing() -> None:
    make = lambda: gather(a(), b(), c(), a(), tolerate=2)  # noqa: E731

    assert Driver(gathers(make)).play(fails("1.0", "1.3")).value == ("!1.0", "1.1", "1.2", "!1.3")
    assert Driver(gathers(make)).play(fails("1.0", "1.2", "1.3")).value == (
        "1.0",
        [None, "1.1", None, None],
        ["!1.0", None, "!1.2", "!1.3"],
    )


# -- what was recorded stays in force ------------------------------------------------------------------------------


def test_the_rules_recorded_with_a_gather_stay_in_force() -> None:
    rules: dict[str, Any] = {"return_exceptions": True}

    def body() -> Workflow[Any]:
        value = plain((yield from gather(a(), b(), **rules)))
        yield from c()
        return value

    run = Driver(body)
    run.turn()
    rules.clear()
    run.play(fails("1.0"))
    assert run.value == ("!1.0", "1.1")

    run = Driver(body)
    run.turn()
    rules["return_exceptions"] = True
    run.play(fails("1.0"))
    assert run.state == "FAILED"


def test_names_are_the_codes() -> None:
    named = False

    def body() -> Workflow[Any]:
        value = yield from (gather(x=a(), y=b()) if named else gather(a(), b()))
        return value

    run = Driver(body)
    run.turn()
    named = True

    assert run.play().value == {"x": "1.0", "y": "1.1"}


# -- bad gathers ---------------------------------------------------------------------------------------------------


wrongly: Any = gather


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: gather(a(), limit=0), "limit=0 is not allowed, expected an int from 1"),
        (lambda: gather(a(), limit=True), "limit=True"),
        (lambda: gather(a(), needed=2), "needed=2 is not allowed, expected an int from 1 to 1, the number of members"),
        (lambda: gather(a(), needed=0), "needed=0"),
        (lambda: gather(a(), tolerate=-1), "tolerate=-1"),
        (lambda: wrongly(a(), return_exceptions=1), "return_exceptions=1"),
        (lambda: wrongly(a(), x=b()), "gather"),
        (lambda: wrongly([a(), b()]), "unpack it: gather(*commands)"),
        (lambda: wrongly(a(), 5), "gather member 1 is a int 5"),
        (lambda: wrongly(x=a(), y=a), "gather member y is a Step"),
        (lambda: wrongly(a(), (x for x in "ab")), "gather member 1 is a generator"),
        (lambda: gather(a()).compensate_with(b()), "gather of 1 cannot be compensated"),
    ],
)
def test_a_wrong_gather_blocks_and_says_what_is_wrong(make: Any, says: str) -> None:
    def body() -> Workflow[None]:
        yield from make()

    decision = Driver(body).decide()

    assert decision.state == "BLOCKED"
    assert decision.failure is not None
    assert says in decision.failure.message


@pytest.mark.parametrize(
    "refused",
    [
        lambda: gather(a(), b(), limit=0),
        lambda: wrongly(a(), x=b()),
        lambda: race(a(), cast(Any, 5)),
        lambda: poll(a(), until=cast(Any, 5)),
        lambda: a().compensate_with(cast(Any, 5)),
        lambda: gather(a()).compensate_with(b()),
    ],
)
def test_the_members_of_what_was_refused_are_not_missed(refused: Any) -> None:
    def body() -> str:
        try:
            refused()
        except UsageError:
            return "refused"
        return "taken"

    assert Driver(body).decide().state == "COMPLETED"


def test_a_command_whose_gather_was_refused_can_still_be_yielded() -> None:
    def body() -> Workflow[str]:
        first = a()
        with pytest.raises(UsageError):
            gather(first, limit=0)  # type: ignore[unused-awaitable]
        return str((yield from first))

    decision = Driver(body).decide()

    assert (decision.state, [opening.position for opening in decision.openings]) == ("WAITING", ["1"])


def test_a_gather_that_has_begun_says_so_in_words() -> None:
    def body() -> Workflow[None]:
        yield from gather(sleep(5), gather(a(), b()))

    run = Driver(body)
    run.turn()
    run.now = BEGIN
    run.end(["1.1.0"], lambda entry: None)

    assert run.turn().waiting == "gather at 1, 0 of 2 ended, first sleep at 1.0 until 2026-11-01 08:30:05 UTC"
    run.pass_time(10)
    assert (
        run.turn().waiting == "gather at 1, 1 of 2 ended, first gather at 1.1, 1 of 2 ended, first step core.b at 1.1.1"
    )


def test_entries_carry_what_the_store_needs_to_let_members_go() -> None:
    def options_of(make: Any) -> str:
        return Driver(gathers(make)).turn().openings[0].options

    assert options_of(lambda: gather(a())) == "{}"
    assert options_of(lambda: gather(a(), limit=2)) == '{"limit":2}'
    assert options_of(lambda: gather(a(), tolerate=3)) == '{"goes_on":true,"tolerate":3}'
    assert options_of(lambda: gather(a(), needed=1)) == '{"goes_on":true,"needed":1}'
    assert options_of(lambda: gather(a(), return_exceptions=True)) == '{"goes_on":true,"return_exceptions":true}'
