"""Races over the real database: who wins, what becomes of the others, whatever happens to processes and messages."""

from __future__ import annotations

import random
from typing import Any

import pytest

from django_app.models import StepResult, WorkflowInstance
from durable_celery import Signal, StepFailed, Workflow, WorkflowFailed, gather, map_step, race, sleep, step, workflow
from tests.pump import Pump, counted

pytestmark = pytest.mark.django_db(transaction=True)

paid = Signal("paid")
ran: list[str] = []
luck = {"fails": False}


@pytest.fixture(autouse=True)
def clean() -> None:
    ran.clear()
    luck.update(fails=False)


@step(retry=None)
def note(what: str) -> str:
    ran.append(what)
    if luck["fails"]:
        raise ValueError(what)
    return what


@workflow
def pays_or_is_late() -> Workflow[Any]:
    winner = yield from race(paid=paid.wait(), late=sleep(1))
    return [winner.name, winner.value]


@workflow
def nested() -> Workflow[Any]:
    first, second = yield from gather(
        race(gather(note("a"), paid.wait()), sleep(10)), race(slow=sleep(20), quick=note("b"))
    )
    kept = yield from paid.wait(timeout=0, default="nothing kept")
    return [first.name, second.name, second.value, kept]


@workflow
def fails_first() -> Workflow[Any]:
    winner = yield from race(note("x"), sleep(60))
    return winner.value


@workflow
def counts_losers(members: int) -> Workflow[Any]:
    winner = yield from race(paid.wait(), *[note(str(number)) for number in range(members)])
    return winner.name


def states(handle: Any) -> dict[str, str]:
    return {entry.position: entry.state for entry in handle.history()}


def test_the_time_out_wins_or_the_message_does(pump: Pump) -> None:
    late, in_time = pays_or_is_late.start(), pays_or_is_late.start()
    pump.drain()
    assert "signal 'paid' at 1.0" in in_time.waiting_for
    assert "sleep at 1.1" in in_time.waiting_for
    in_time.signal("paid", 5)
    pump.finish()

    assert late.result(timeout=0) == ["late", None]
    assert in_time.result(timeout=0) == ["paid", 5]
    assert states(late) == {"1": "SUCCEEDED", "1.0": "CANCELLED", "1.1": "SUCCEEDED"}
    assert states(in_time) == {"1": "SUCCEEDED", "1.0": "SUCCEEDED", "1.1": "CANCELLED"}
    assert {entry.position: entry.result for entry in in_time.history()}["1"] == "paid"
    assert not StepResult.objects.filter(look_at__isnull=False).exists()


def test_what_a_loser_had_taken_is_delivered_to_who_asks_next(pump: Pump) -> None:
    luck.update(fails=False)
    handle = nested.start()
    handle.signal("paid", "early")
    pump.finish()

    assert handle.result(timeout=0) == [0, "quick", "b", "nothing kept"]


def test_a_claimed_loser_goes_on_and_nobody_hears_of_it(pump: Pump) -> None:
    seen: list[dict[str, str]] = []

    @step(name="tests.race.long")
    def long() -> str:
        pump.advance_time(5)  # the timer falls due while this body runs
        seen.append(states(handle))
        return "long"

    @workflow(name="tests.race.against_a_long_step")
    def against() -> Workflow[Any]:
        winner = yield from race(sleep(3), long())
        return winner.name

    handle = against.start()
    pump.finish()

    assert handle.result(timeout=0) == 0
    assert seen == [{"1": "SUCCEEDED", "1.0": "SUCCEEDED", "1.1": "ABANDONED"}]
    (entry,) = [e for e in handle.history() if e.position == "1.1"]
    assert (entry.state, entry.result) == ("SUCCEEDED", "long")
    assert handle.status == "COMPLETED"


def test_retry_opens_a_lost_race_again(pump: Pump) -> None:
    luck.update(fails=True)
    handle = fails_first.start()
    pump.finish()
    with pytest.raises(WorkflowFailed):
        handle.result(timeout=0)
    assert states(handle) == {"1": "FAILED", "1.0": "FAILED", "1.1": "CANCELLED"}
    luck.update(fails=False)
    handle.retry()
    assert states(handle) == {"1": "SCHEDULED", "1.0": "SCHEDULED", "1.1": "SCHEDULED"}
    pump.finish()

    assert handle.result(timeout=0) == "x"
    assert ran == ["x", "x"]
    assert states(handle) == {"1": "SUCCEEDED", "1.0": "SUCCEEDED", "1.1": "CANCELLED"}


@pytest.mark.parametrize("point", ["turn.before_commit", "turn.in_transaction", "turn.after_commit", "record.after"])
@pytest.mark.parametrize("nth", [1, 2, 3])
def test_a_kill_anywhere_changes_nothing(pump: Pump, point: str, nth: int) -> None:
    pump.kill_at(point, nth)
    handle = nested.start()
    pump.advance_time(5)
    handle.signal("paid", "p")
    pump.finish()

    assert handle.result(timeout=0) == [0, "quick", "b", "nothing kept"]
    assert {entry.position: entry.state for entry in handle.history()} == {
        "1": "SUCCEEDED", "1.0": "SUCCEEDED", "1.0.0": "SUCCEEDED", "1.0.0.0": "SUCCEEDED", "1.0.0.1": "SUCCEEDED",
        "1.0.1": "CANCELLED", "1.1": "SUCCEEDED", "1.1.0": "CANCELLED", "1.1.1": "SUCCEEDED", "2": "SUCCEEDED",
    }  # fmt: skip


@pytest.mark.parametrize("seed", range(6))
def test_doubled_late_and_reordered_messages_change_nothing(pump: Pump, seed: int) -> None:
    dice = random.Random(seed)
    pump.fate = lambda hint: [dice.choice([0, 0, 1, 4]) for _ in range(dice.choice([0, 1, 2, 3]))]
    pump.choose = lambda ready: dice.randrange(len(ready))
    handle = nested.start()
    pump.advance_time(30)
    pump.finish()

    result = handle.result(timeout=0)
    assert result[0] == 1
    assert result[2:] in (["b", "nothing kept"], [None, "nothing kept"])
    assert ran.count("a") == 1
    assert ran.count("b") <= 1


def test_a_lost_race_takes_the_same_statements_however_many_have_lost(pump: Pump) -> None:
    def spent(members: int) -> int:
        handle = counts_losers.start(members)
        pump.fate = lambda hint: () if hint.step is not None else (0.0,)
        pump.drain()
        handle.signal("paid")
        with counted() as sent:
            pump.drain()
        assert handle.result(timeout=0) == 0
        return len(sent)

    assert spent(3) == spent(40)


def test_an_error_of_a_race_can_be_caught_and_the_body_goes_on(pump: Pump) -> None:
    @workflow(name="tests.race.catches")
    def catches() -> Workflow[Any]:
        luck.update(fails=True)
        try:
            yield from race(note("first"), sleep(60))
        except StepFailed as error:
            return [error.position, error.error_type]

    handle = catches.start()
    pump.finish()
    assert handle.result(timeout=0) == ["1.0", "ValueError"]


def test_a_child_that_loses_is_asked_to_end(pump: Pump) -> None:
    @workflow(name="tests.race.child")
    def child() -> Workflow[str]:
        yield from sleep(1000)
        return "late"

    @workflow(name="tests.race.parent")
    def parent() -> Workflow[Any]:
        winner = yield from race(child=child(), late=sleep(5))
        return winner.name

    handle = parent.start()
    pump.finish()
    assert handle.result(timeout=0) == "late"
    run = WorkflowInstance.objects.get(parent_id=handle.id)
    assert run.state == "CANCELLED"
    assert states(handle) == {"1": "SUCCEEDED", "1.0": "CANCELLED", "1.1": "SUCCEEDED"}


def test_a_child_that_ends_first_wins(pump: Pump) -> None:
    @workflow(name="tests.race.quick_child")
    def child() -> Workflow[str]:
        return (yield from note("in the child"))

    @workflow(name="tests.race.quick_parent")
    def parent() -> Workflow[Any]:
        winner = yield from race(child(), sleep(5))
        return winner.value

    handle = parent.start()
    pump.finish()
    assert handle.result(timeout=0) == "in the child"
    assert states(handle) == {"1": "SUCCEEDED", "1.0": "SUCCEEDED", "1.1": "CANCELLED"}


def test_a_map_may_lose_and_may_win(pump: Pump) -> None:
    @workflow(name="tests.race.maps")
    def maps(seconds: float) -> Workflow[Any]:
        winner = yield from race(map_step(note, ["x", "y", "z"], limit=1), sleep(seconds))
        return [winner.name, winner.value and list(winner.value)]

    pump.fate = lambda hint: (2.0,) if hint.step is not None else (0.0,)
    won, lost = maps.start(60), maps.start(3)
    pump.finish()
    assert won.result(timeout=0) == [0, ["x", "y", "z"]]
    assert lost.result(timeout=0) == [1, None]
    assert sorted(ran) == ["x", "x", "y", "z"]
