"""Keys became text, tuples lists, ids strings: code that worked on the first pass failed after a restart.

What a body receives in the live turn is already what every replay gives it; what cannot come back the same is refused
at the step, with the path to it.
"""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum, IntEnum
from typing import Any, NamedTuple
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest
from django.utils.translation import gettext_lazy

from durable_celery import (
    RetryPolicy,
    Signal,
    StepFailed,
    Workflow,
    WorkflowFailed,
    gather,
    side_effect,
    step,
    workflow,
)
from tests.project.testapp.models import Effect
from tests.pump import Pump

go = Signal("o46.go", object)
seen: list[tuple[str, Any]] = []

Point = namedtuple("Point", "x y")


class Place(NamedTuple):
    city: str
    at: Decimal = Decimal("1.50")


class Colour(Enum):
    RED = "red"


class Size(IntEnum):
    LARGE = 3


@dataclass(frozen=True)
class Receipt:
    id: UUID
    lines: tuple[Decimal, ...] = ()
    paid: datetime | None = None
    tags: set[str] = field(default_factory=set)


NOW = datetime(2026, 11, 29, 12, 0, 0, 123456, tzinfo=timezone.utc)
KEPT: dict[str, Any] = {
    "Decimal": Decimal("1.10"),
    "Decimal, big": Decimal("-1E+400"),
    "UUID": UUID("12345678123456781234567812345678"),
    "aware datetime": NOW,
    "datetime in a zone": datetime(2026, 10, 25, 2, 30, tzinfo=ZoneInfo("Europe/Berlin"), fold=1),
    "datetime with an offset": NOW.astimezone(timezone(timedelta(hours=-3, minutes=30))),
    "naive datetime": NOW.replace(tzinfo=None),
    "date": date(2026, 2, 28),
    "time": time(23, 59, 59, 999999),
    "timedelta": timedelta(days=-1, microseconds=7),
    "bytes": b"\x00\xff",
    "tuple": (1, (2, [3])),
    "empty tuple": (),
    "set": {1, "a", (2,)},
    "frozenset": frozenset({Colour.RED}),
    "namedtuple": Point(1, (2,)),
    "NamedTuple": Place("Köln"),
    "Enum": Colour.RED,
    "IntEnum": Size.LARGE,
    "dataclass": Receipt(UUID(int=7), (Decimal("0.10"),), NOW, {"a"}),
    "int": 2**70,
    "bool": True,
    "float": 0.1 + 0.2,
    "negative zero": -0.0,
    "None": None,
    "text keys": {"1": "a", "$": {"$": "decimal", "v": "1"}},
    "all of it": {"deep": [({"x": (Decimal("1"), [Place("Bonn"), {Colour.RED}])},)]},
}
REFUSED: dict[str, tuple[Callable[[], Any], str, str]] = {
    "int keys": (lambda: {1: "a"}, "the result[1]", "only text for keys"),
    "keys that JSON would join": (lambda: {1: "a", "1": "b"}, "the result[1]", "only text for keys"),
    "NaN": (lambda: {"items": [0, 0, 0, float("nan")]}, "the result['items'][3]", "nan"),
    "a lambda": (lambda: [lambda: 1], "the result[0]", "function"),
    "a model instance": (lambda: Receipt(Effect(run="x")), "the result.id", "primary key"),  # type: ignore[arg-type]
    "a queryset": (lambda: (Effect.objects.all(),), "the result[0]", "primary keys"),
}  # fmt: skip


@step(name="o46.make", retry=RetryPolicy(maximum_attempts=5, initial_interval=1))
def make(name: str) -> Any:
    return KEPT[name] if name in KEPT else REFUSED[name][0]()


@step(name="o46.echo")
def echo(value: Any) -> Any:
    seen.append(("body of the step", value))
    return value


@workflow(name="o46.carrying")
def carrying(given: Any, name: str) -> Workflow[Any]:
    seen.append(("argument", given))
    returned = yield from make(name)
    seen.append(("result", returned))
    recorded = side_effect(lambda: returned)
    seen.append(("side effect", recorded))
    member, passed_on = yield from gather(make(name), echo(returned))
    seen.append(("result of a member", member))
    seen.append(("result of a step it was passed to", passed_on))
    received = yield from go.wait(timeout=60)
    seen.append(("payload", received))
    return received


@workflow(name="o46.changing")
def changing() -> Workflow[Any]:
    """Changes what it received, which must not change what the next turn receives."""
    made = yield from make("list")
    seen.append(("before", list(made)))
    made.append("changed by the body")
    yield from go.wait(timeout=60)
    return made


@workflow(name="o46.asking")
def asking(name: str) -> Workflow[Any]:
    return (yield from make(name))


@workflow(name="o46.catching")
def catching(name: str) -> Workflow[str]:
    try:
        yield from make(name)
    except StepFailed as error:
        return error.error_type
    return "?"


@pytest.fixture(autouse=True)
def _nothing_seen() -> None:
    seen.clear()


@pytest.mark.parametrize("name", KEPT)
def test_o46_a_value_is_the_same_live_and_on_every_replay(pump: Pump, name: str) -> None:
    value = KEPT[name]
    handle = carrying.start(value, name)
    pump.drain()
    go.send(handle, value)
    pump.drain()
    places = ("argument", "result", "side effect", "body of the step", "result of a member",
              "result of a step it was passed to", "payload")  # fmt: skip
    assert {place for place, _ in seen} == set(places)
    counts = [sum(place == at for at, _ in seen) for place in places]
    assert counts[1] >= 3, "the result was seen in the turn it came in, and on replay"
    for place, found in seen:
        assert found == value, place
        assert type(found) is type(value), place
        assert repr(sorted(found, key=repr) if isinstance(found, (set, frozenset)) else found) == repr(
            sorted(value, key=repr) if isinstance(value, (set, frozenset)) else value
        ), place
    assert handle.result(timeout=0) == value
    assert type(handle.result(timeout=0)) is type(value)


def test_o46_the_live_turn_gets_a_copy_that_was_stored_and_read(pump: Pump) -> None:
    KEPT["list"] = original = [["inner"]]
    try:
        handle = carrying.start(None, "list")
        pump.drain()
    finally:
        del KEPT["list"]
    results = [value for place, value in seen if place == "result"]
    assert results
    assert all(value == original and value is not original and value[0] is not original[0] for value in results)
    assert handle.status == "WAITING"


def test_o46_what_a_body_does_to_a_result_is_not_in_the_next_turns_result(pump: Pump) -> None:
    KEPT["list"] = ["made"]
    try:
        handle = changing.start()
        pump.drain()
    finally:
        del KEPT["list"]
    go.send(handle, 1)
    pump.drain()
    assert handle.result(timeout=0) == ["made", "changed by the body"]
    assert seen == [("before", ["made"])] * 2


@pytest.mark.parametrize("name", REFUSED)
def test_o46_what_cannot_come_back_is_refused_at_the_step_with_its_path(pump: Pump, name: str) -> None:
    _, path, hint = REFUSED[name]
    handle = asking.start(name)
    pump.finish()
    assert handle.status == "FAILED"
    (entry,) = handle.history()
    assert (entry.state, entry.attempts) == ("FAILED", 1)
    assert entry.error is not None
    assert entry.error.type == "durable_celery.errors.NotSerializable"
    assert entry.error.message.startswith(f"{path} of step o46.make cannot be stored: ")
    assert hint in entry.error.message
    with pytest.raises(WorkflowFailed, match="NotSerializable"):
        handle.result(timeout=0)


def test_o46_the_body_may_catch_the_refusal(pump: Pump) -> None:
    handle = catching.start("NaN")
    pump.finish()
    assert handle.result(timeout=0) == "durable_celery.errors.NotSerializable"


def test_o46_a_lazy_text_comes_back_as_text_at_once(pump: Pump) -> None:
    KEPT["lazy"] = gettext_lazy("Yes")
    try:
        handle = asking.start("lazy")
        pump.drain()
    finally:
        del KEPT["lazy"]
    assert type(handle.result(timeout=0)) is str
