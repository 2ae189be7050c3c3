"""What a body uses without a yield: the same on replay, recorded where it must be."""

from __future__ import annotations

import logging
import random as dice
import uuid
from typing import Any

import pytest

from durable_celery import (
    NotSerializable,
    Signal,
    Workflow,
    codec,
    gather,
    get_logger,
    now,
    random,
    set_status,
    side_effect,
    sleep,
    sleep_until,
    uuid4,
)
from durable_celery.core.decision import Decision
from durable_celery.errors import NotInWorkflow
from tests.core.driver import BEGIN, Driver, a, b, shown


def test_uuids_and_dice_are_the_same_in_every_replay_and_differ_from_each_other() -> None:
    seen: list[list[Any]] = []

    def body() -> Workflow[int]:
        values: list[Any] = [uuid4(), uuid4(), random().random(), random().random(), str(uuid4())]
        yield from a()
        values += [uuid4(), random().randint(0, 10**9)]
        yield from gather(a(), b())
        values += [uuid4()]
        yield from Signal("go").wait()
        values += [uuid4()]
        seen.append(values)
        return len(values)

    run = Driver(body)
    run.signal("go")
    run.play()
    run.decide(recorded_only=True)

    assert run.value == 9
    assert len(seen) == 3
    assert all(values == seen[0] for values in seen)
    assert len({repr(value) for value in seen[0]}) == 9


def test_a_uuid_is_one_of_version_4() -> None:
    def body() -> uuid.UUID:
        return uuid4()

    made = Driver(body).turn().value

    assert (made.version, made.variant) == (4, uuid.RFC_4122)


def test_dice_are_a_generator_of_their_own() -> None:
    def body() -> list[float]:
        rolls = random()
        dice.seed(1)
        return [rolls.random() for _ in range(3)]

    first = Driver(body).turn().value
    dice.seed(2)

    assert Driver(body).turn().value == first


def test_other_instances_have_other_dice(monkeypatch: pytest.MonkeyPatch) -> None:
    def body() -> uuid.UUID:
        return uuid4()

    one = Driver(body).turn().value
    monkeypatch.setattr("tests.core.driver.INSTANCE", "another")

    assert Driver(body).turn().value != one


def test_dice_depend_on_the_event_that_came_before_not_on_how_many_turns_it_took() -> None:
    seen: list[uuid.UUID] = []

    def body() -> Workflow[None]:
        yield from gather(a(), a())
        seen.append(uuid4())

    together = Driver(body)
    together.turn()
    together.end(["1.0", "1.1"], lambda entry: None)
    together.turn()
    apart = Driver(body)
    apart.turn()
    for position in ("1.0", "1.1"):
        apart.succeed(position)
        apart.turn()

    assert len(set(seen)) == 1


# -- side effects --------------------------------------------------------------------------------------------------


def test_a_side_effect_runs_in_its_turn_and_is_recorded_once() -> None:
    calls: list[int] = []

    def count() -> int:
        calls.append(1)
        return len(calls)

    def body() -> Workflow[Any]:
        first = side_effect(lambda: (count(), {2}))
        yield from a()
        second = side_effect(count)
        return first, second

    run = Driver(body)
    decision = run.decide()
    run.apply(decision)
    assert shown(decision) == [
        "open step core.a at 1 SCHEDULED",
        f"mark side:start:1 {codec.encode((1, {2}))}",
        "WAITING step core.a at 1",
    ]
    run.succeed("1")
    decision = run.decide()
    run.apply(decision)

    assert calls == [1, 1]
    assert decision.markers == {"side:1:1": "2"}
    assert run.value == ((1, {2}), 2)
    assert run.decide(recorded_only=True) == Decision(state="COMPLETED", value=((1, {2}), 2))
    assert calls == [1, 1]


def test_a_side_effect_gives_a_decoded_copy_live_as_well() -> None:
    kept: list[int] = [1]

    def body() -> bool:
        value = side_effect(lambda: kept)
        value.append(2)
        return value is kept

    assert Driver(body).turn().value is False
    assert kept == [1]


def test_a_side_effect_that_raises_is_a_bug_and_records_nothing() -> None:
    def body() -> int:
        return side_effect(lambda: int("x"))

    decision = Driver(body).turn()

    assert (decision.state, decision.markers) == ("BLOCKED", {})


def test_a_side_effect_whose_value_cannot_be_kept_says_so() -> None:
    def body() -> object:
        return side_effect(object)

    failure = Driver(body).turn().failure

    assert failure is not None
    assert failure.type.endswith(NotSerializable.__name__)
    assert "the value of side_effect" in failure.message


def test_a_blocked_turn_records_no_marker() -> None:
    def body() -> Workflow[None]:
        side_effect(lambda: 1)
        yield 5

    decision = Driver(body).turn()

    assert decision == Decision(state="BLOCKED", failure=decision.failure, waiting=decision.waiting)


# -- words about itself --------------------------------------------------------------------------------------------


def test_a_status_is_committed_with_its_turn() -> None:
    def body() -> Workflow[None]:
        set_status("reserving")
        yield from a()
        set_status("x" * 600)
        yield from b()

    run = Driver(body)
    first = run.turn()
    run.succeed("1")
    second = run.turn()

    assert (first.status_text, second.status_text) == ("reserving", "x" * 500)


def test_a_logger_is_silent_while_replaying(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)

    def body() -> Workflow[None]:
        log = get_logger()
        log.info("begins")
        yield from a()
        log.info("goes on with %s", 5)
        yield from b()
        log.info("ends")

    run = Driver(body)
    run.apply(run.decide())
    run.succeed("1")
    run.apply(run.decide())
    run.succeed("2")
    run.apply(run.decide())

    assert [(record.name, record.getMessage()) for record in caplog.records] == [
        ("core.workflow", "begins"),
        ("core.workflow", "goes on with 5"),
        ("core.workflow", "ends"),
    ]
    assert caplog.records[0].__dict__["workflow"] == "core.workflow"


@pytest.mark.parametrize(
    ("helper", "instead"),
    [
        (now, "django.utils.timezone.now()"),
        (uuid4, "uuid.uuid4()"),
        (random, "the random module"),
        (lambda: side_effect(int), "just call the function"),
        (lambda: set_status("x"), "it belongs to the body"),
        (get_logger, "logging.getLogger()"),
        (lambda: sleep(1), "start_delay="),
        (lambda: sleep_until(BEGIN), "Beat schedule"),
        (lambda: Signal("go").wait(), "signal.send(handle, payload)"),
        (lambda: a(1), "a.call(...)"),
        (gather, "@workflow"),
    ],
)
def test_outside_of_a_workflow_a_helper_says_what_to_use(helper: Any, instead: str) -> None:
    with pytest.raises(NotInWorkflow) as caught:
        helper()

    assert "works only inside a running workflow" in str(caught.value)
    assert instead in str(caught.value)
