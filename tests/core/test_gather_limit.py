"""A gather with a limit: rows held back, members opened one by one, and what never starts."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from durable_celery import Signal, StepFailed, Workflow, gather, sleep, step
from durable_celery.core import transitions
from durable_celery.core.decision import Closing, Decision
from tests.core.driver import BEGIN, Driver, a, b, c, shown

go: Signal[Any] = Signal("go")


def caught(make: Any) -> Any:
    def body() -> Workflow[Any]:
        try:
            value = yield from make()
        except StepFailed as error:
            value = error.position, error.results, [e and e.position for e in error.errors]
        yield from c()
        return value

    return body


def test_members_over_the_limit_are_rows_that_nobody_may_claim_yet() -> None:
    run = Driver(caught(lambda: gather(a(), a(), a(), a(), limit=2)))
    decision = run.turn()

    assert [(o.position, o.state, o.limited, o.join) for o in decision.openings] == [
        ("1", "SCHEDULED", False, ""),
        ("1.0", "SCHEDULED", True, "1"),
        ("1.1", "SCHEDULED", True, "1"),
        ("1.2", "HELD", True, "1"),
        ("1.3", "HELD", True, "1"),
    ]
    assert decision.openings[0].options == '{"limit":2}'


def test_the_clocks_of_a_member_held_back_start_when_it_is_let_go() -> None:
    @step(name="core.timed", schedule_to_start_timeout=5, schedule_to_close_timeout=60)
    def timed() -> None: ...

    openings = Driver(caught(lambda: gather(timed(), timed(), limit=1))).turn().openings

    assert [(o.start_by_at, o.end_by_at) for o in openings[1:]] == [
        (BEGIN + timedelta(seconds=5), BEGIN + timedelta(seconds=60)),
        (None, None),
    ]


def test_a_limit_over_the_number_of_members_holds_nothing_back() -> None:
    openings = Driver(caught(lambda: gather(a(), a(), limit=5))).turn().openings

    assert [opening.state for opening in openings] == ["SCHEDULED"] * 3


def test_what_is_held_is_not_what_the_body_waits_for() -> None:
    run = Driver(caught(lambda: gather(a(), b(), limit=1)))

    assert run.turn().waiting == "gather at 1, 0 of 2 ended, first step core.a at 1.0"


def test_o18_members_held_back_at_a_failure_never_start() -> None:
    run = Driver(caught(lambda: gather(a(), a(), a(), a(), limit=2)))
    run.turn()
    run.fail("1.1")
    assert shown(run.turn()) == [
        "give up 1.2",
        "give up 1.3",
        "take 3",
        "mark stopped:1 [2,3]",
        "WAITING gather at 1, 1 of 4 ended, first step core.a at 1.0",
    ]
    run.succeed("1.0", "value")
    assert shown(run.turn()) == [
        "open step core.c at 2 SCHEDULED",
        "end 1 FAILED",
        "take 2",
        "WAITING step core.c at 2",
    ]
    run.succeed("2")
    assert run.turn().value == ("1.1", ["value", None, None, None], [None, "1.1", None, None])
    assert [run.entries[p].state for p in ("1.2", "1.3")] == ["CANCELLED", "CANCELLED"]


def test_a_member_let_go_before_the_failure_is_waited_for() -> None:
    run = Driver(caught(lambda: gather(a(), a(), a(), a(), limit=2)))
    run.turn()
    run.succeed("1.0")
    run.fail("1.1")
    assert shown(run.turn()) == [
        "give up 1.3",
        "take 2",
        "take 3",
        "mark stopped:1 [3]",
        "WAITING gather at 1, 2 of 4 ended, first step core.a at 1.2",
    ]
    run.succeed("1.2", "third")
    run.turn()
    run.succeed("2")

    assert run.turn().value == ("1.1", [None, None, "third", None], [None, "1.1", None, None])


def test_what_never_starts_is_decided_once_whatever_becomes_of_the_row() -> None:
    """A member may be let go, and even end, between the reading of the journal and the commit of the turn."""
    for state in (transitions.ABANDONED, transitions.SUCCEEDED, transitions.FAILED):
        run = Driver(caught(lambda: gather(a(), a(), a(), limit=2, tolerate=0)))
        run.turn()
        run.fail("1.0")
        run.turn()
        run._set(run.entries["1.2"], state=state, attempt=1, result="5", finished_at=run.now)
        run.succeed("1.1")
        run.turn()
        run.succeed("2")

        assert run.turn().value == ("1.0", [None, None, None], ["1.0", None, None])


def test_a_member_that_was_waited_for_stays_so_although_it_never_ran() -> None:
    """Seen live as let go, given up unclaimed later by the gather around it: replay must not take it for a held one."""

    def body() -> Workflow[Any]:
        limited = gather(a(), a(), a(), limit=2)
        outer = yield from gather(limited, b(), needed=1, return_exceptions=True)
        yield from go.wait()
        return outer

    run = Driver(body)
    run.turn()
    run.succeed("1.0.0")  # lets the third one go
    run.fail("1.0.1")
    assert run.turn().state == "WAITING"
    run.succeed("1.1", "B")
    run.turn()
    assert run.entries["1.0.2"].state == transitions.CANCELLED
    run.signal("go")

    assert run.turn() == Decision(
        state="COMPLETED",
        value=(None, "B"),
        closings=(Closing(position="2", state="SUCCEEDED", result="null", at=run.now),),
        taken_messages={1: 0},
        delivered_messages=(1,),
    )


def test_nothing_is_recorded_where_nothing_was_held_back() -> None:
    run = Driver(caught(lambda: gather(a(), a(), limit=2)))
    run.turn()
    run.fail("1.0")

    assert run.turn().markers == {}


def test_a_forgiving_gather_lets_every_member_go() -> None:
    run = Driver(caught(lambda: gather(a(), a(), a(), limit=1, return_exceptions=True)))
    run.turn()
    for position in ("1.0", "1.1", "1.2"):
        assert run.open_steps() == [position]
        run.fail(position)
        run.turn()

    assert run.open_steps() == ["2"]
    assert [run.entries[p].attempt for p in ("1.0", "1.1", "1.2")] == [1, 1, 1]


def test_enough_successes_give_up_what_was_held_back() -> None:
    run = Driver(caught(lambda: gather(a(), a(), a(), limit=1, needed=1)))
    run.turn()
    run.succeed("1.0", "first")
    decision = run.turn()

    assert decision.withdrawn == ("1.1", "1.2")
    run.succeed("2")
    assert run.turn().value == ("first", None, None)


def test_members_of_other_kinds_are_opened_one_by_one() -> None:
    run = Driver(caught(lambda: gather(sleep(3), a(), go.wait(), gather(a(), b()), limit=2)))

    assert shown(run.turn())[:-1] == [
        "open gather at 1 SCHEDULED",
        "open timer at 1.0 SCHEDULED in 1",
        "open step core.a at 1.1 SCHEDULED in 1",
    ]
    run.succeed("1.1", "A")
    assert shown(run.turn())[:-1] == ["open signal go at 1.2 SCHEDULED in 1", "take 3"]
    run.pass_time(5)
    assert shown(run.turn())[:-1] == [
        "open gather at 1.3 SCHEDULED in 1",
        "open step core.a at 1.3.0 SCHEDULED in 1.3",
        "open step core.b at 1.3.1 SCHEDULED in 1.3",
        "end 1.0 SUCCEEDED",
        "take 2",
    ]
    run.signal("go", "G")
    run.end(["1.3.0", "1.3.1"], lambda entry: entry.name)
    run.turn()
    run.succeed("2")
    assert run.turn().value == (None, "A", "G", ("core.a", "core.b"))


def test_a_member_that_ends_as_it_opens_makes_room_at_once() -> None:
    run = Driver(caught(lambda: gather(go.wait(), gather(), go.wait(), a(), limit=1)))
    run.signal("go", 1)
    run.signal("go", 2)

    assert shown(run.turn())[-2:] == [
        "take message 2",
        "WAITING gather at 1, 3 of 4 ended, first step core.a at 1.3",
    ]


def test_members_opened_one_by_one_do_not_open_after_a_failure() -> None:
    run = Driver(caught(lambda: gather(a(), sleep(3), b(), b(), limit=2)))
    run.turn()
    run.fail("1.0")
    assert shown(run.turn()) == [
        "take 2",
        "WAITING gather at 1, 1 of 4 ended, first sleep at 1.1 until 2026-11-01 08:30:03 UTC",
    ]
    run.pass_time(5)
    run.turn()
    run.succeed("2")

    assert run.turn().value == ("1.0", [None, None, None, None], ["1.0", None, None, None])
    assert list(run.entries) == ["1", "1.0", "1.1", "2"]


def test_the_recorded_limit_stays_in_force() -> None:
    limit = 1

    def body() -> Workflow[Any]:
        return (yield from gather(a(), sleep(5), b(), limit=limit))

    run = Driver(body)
    run.turn()
    limit = 3
    run.succeed("1.0")

    assert shown(run.turn())[:-1] == ["open timer at 1.1 SCHEDULED in 1", "take 2"]
    assert run.play().value == (None, None, "1.2")
