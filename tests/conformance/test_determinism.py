from __future__ import annotations

import logging
from typing import Any

import pytest

from django_app.models import WorkflowInstance
from durable_celery import (
    current_workflow,
    gather,
    get_logger,
    now,
    random,
    set_attributes,
    set_status,
    side_effect,
    sleep,
    uuid4,
)
from tests.conformance.lives import ran, run, say, start
from tests.pump import Pump, release

seen: dict[str, list[Any]] = {}


@pytest.fixture(autouse=True)
def _nothing_seen() -> None:
    seen.clear()


def see(what: str, value: Any) -> Any:
    seen.setdefault(what, []).append(value)
    return value


def test_now_is_the_same_on_replay_and_goes_on_between_turns(pump: Pump) -> None:
    def body() -> Any:
        first = see("first", now())
        yield from sleep(60)
        second = see("second", now())
        yield from sleep(60)
        return (second - first).total_seconds()

    assert run(pump, body) == 60
    assert len(set(seen["first"])) == len(set(seen["second"])) == 1


def test_a_uuid_is_the_same_on_replay_and_another_each_time(pump: Pump) -> None:
    def body() -> Any:
        a = see("a", uuid4())
        yield from sleep(60)
        b = see("b", uuid4())
        yield from say("x")
        return a != b

    assert run(pump, body) is True
    assert len(set(seen["a"])) == len(set(seen["b"])) == 1


def test_dice_are_the_same_on_replay(pump: Pump) -> None:
    def body() -> Any:
        see("before", [random().randint(1, 10**9) for _ in range(3)])
        yield from sleep(60)
        see("after", random().choice(range(10**9)))
        yield from sleep(60)

    run(pump, body)
    assert len({str(each) for each in seen["before"]}) == 1
    assert len(set(seen["before"][0])) == 3
    assert len(set(seen["after"])) == 1


def test_instances_have_dice_of_their_own(pump: Pump) -> None:
    def body() -> Any:
        return (yield from say((str(uuid4()), random().random())))

    assert run(pump, body) != run(pump, body)


def test_a_side_effect_is_recorded(pump: Pump) -> None:
    def body() -> Any:
        value = side_effect(lambda: see("made", len(seen.get("made", []))))
        yield from sleep(60)
        see("read", value)
        yield from sleep(60)
        return value

    value = run(pump, body)
    made = len(seen["made"])
    assert set(seen["read"]) == {value}
    assert made <= 2  # once, and once more where the process died before the commit


def test_a_side_effect_that_cannot_be_kept_blocks(pump: Pump) -> None:
    def body() -> Any:
        side_effect(object)
        yield from say("never")

    handle = start(body)
    pump.drain()
    assert (handle.status, "side_effect" in handle.waiting_for) == ("BLOCKED", True)


@pytest.mark.parametrize("pump", ["straight"], indirect=True)
def test_a_line_is_logged_once_however_often_the_body_is_replayed(pump: Pump, caplog: Any) -> None:
    def body() -> Any:
        log = get_logger("checklist.log")
        log.warning("begins")
        for n in range(3):
            yield from sleep(60)
            log.warning("woke %s", n)

    with caplog.at_level(logging.WARNING, "checklist.log"):
        run(pump, body)
    assert [r.getMessage() for r in caplog.records if r.name == "checklist.log"] == [
        "begins", "woke 0", "woke 1", "woke 2",
    ]  # fmt: skip


def test_a_body_knows_whether_it_is_replaying(pump: Pump) -> None:
    def body() -> Any:
        see("start", current_workflow().is_replaying)
        yield from sleep(60)
        see("end", current_workflow().is_replaying)

    run(pump, body)
    assert seen["start"][0] is False
    assert seen["start"][-1] is True
    assert set(seen["end"]) == {False}


def test_the_status_text_and_attributes_are_those_of_the_last_turn(pump: Pump) -> None:
    def body() -> Any:
        set_status("packing")
        set_attributes(city="Oslo", parcels=1)
        yield from sleep(60)
        set_status("shipped")
        set_attributes(parcels=2)
        yield from sleep(60)

    handle = start(body)
    pump.advance_time(90)
    found = WorkflowInstance.objects.with_attributes(city="Oslo", parcels=2).get()
    assert (str(found.pk), found.status_text) == (handle.id, "shipped")


def test_a_body_that_asks_for_something_else_on_replay_is_blocked_and_runs_nothing(pump: Pump) -> None:
    from tests.conformance.lives import numbers

    name = f"checklist.{next(numbers)}"

    def first() -> Any:
        yield from say("a")
        yield from sleep(60)

    def second() -> Any:
        yield from gather(say("b"), say("c"))
        yield from sleep(60)

    handle = release(name, first).start()
    pump.drain()
    release(name, second)
    pump.advance_time(61)
    assert (handle.status, ran) == ("BLOCKED", ["a"])
    assert "checklist.say" in handle.waiting_for
