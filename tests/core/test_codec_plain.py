"""JSON that people typed, turned into values of declared types; and the signals found by name for it."""

from __future__ import annotations

import enum
import gc
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Annotated, Any, Literal, NamedTuple
from uuid import UUID

import pydantic
import pytest

from durable_celery import Signal, register_type
from durable_celery.codec import from_plain, signature_text
from durable_celery.errors import BadValue
from durable_celery.messages import payload_of, signals


class Colour(enum.Enum):
    RED = "r"


class Size(NamedTuple):
    width: int
    height: int = 1


@dataclass(frozen=True)
class Line:
    sku: str
    price: Decimal


@dataclass(frozen=True)
class Approval:
    by: str
    lines: tuple[Line, ...] = ()
    colour: Colour | None = None
    note: str = field(default="", kw_only=True)

    def __post_init__(self) -> None:
        if not self.by:
            raise ValueError("nobody approved")


class Review(pydantic.BaseModel):
    stars: int
    tags: list[str] = []


class Money:
    def __init__(self, text: str) -> None:
        self.cents = int(float(text) * 100)


register_type(Money, lambda money: str(money.cents / 100), Money)


@pytest.mark.parametrize(
    ("text", "kind", "value"),
    [
        ("7", int, 7),
        ("7", float, 7.0),
        ("true", bool, True),
        ('"x"', bytes, b"x"),
        ('"1.50"', Decimal, Decimal("1.50")),
        ("1.5", Decimal, Decimal("1.5")),
        (str(10**400), Decimal, Decimal(10**400)),
        ('"2026-11-29T17:00:00Z"', datetime, datetime(2026, 11, 29, 17, tzinfo=timezone.utc)),
        ('"2026-11-29"', date, date(2026, 11, 29)),
        ("90", timedelta, timedelta(seconds=90)),
        ('"01972d3e-7c5b-7e43-9a5e-3f1f0c8e2b11"', UUID, UUID("01972d3e-7c5b-7e43-9a5e-3f1f0c8e2b11")),
        ('"r"', Colour, Colour.RED),
        ('"RED"', Colour, Colour.RED),
        ("[1, 2]", set[int], {1, 2}),
        ('[1, "a"]', tuple[int, str], (1, "a")),
        ('["1.5"]', Sequence[Decimal], [Decimal("1.5")]),
        ('{"a": "2026-11-29"}', Mapping[str, date], {"a": date(2026, 11, 29)}),
        ('{"width": 3}', Size, Size(3)),
        ("null", int | None, None),
        ('"x"', int | str, "x"),
        ('"x"', Literal["x", "y"], "x"),
        ('{"stars": 5}', Review, Review(stars=5)),
        ("3", Annotated[int, "small"], 3),
        ('{"any": [1]}', Any, {"any": [1]}),
        ('{"any": [1]}', None, {"any": [1]}),
        ('{"by": "ana", "lines": [{"sku": "a", "price": "2"}], "colour": "r", "note": "n"}', Approval,
         Approval("ana", (Line("a", Decimal(2)),), Colour.RED, note="n")),
    ],
)  # fmt: skip
def test_json_becomes_a_value_of_the_declared_type(text: str, kind: Any, value: Any) -> None:
    found = from_plain(json.loads(text), kind)
    assert found == value
    assert type(found) is type(value)


def test_a_registered_type_is_made_by_its_own_function() -> None:
    assert from_plain("1.5", Money).cents == 150
    with pytest.raises(BadValue, match=r"^value: Money refuses it \(ValueError"):
        from_plain("much", Money)


@pytest.mark.parametrize(
    ("text", "kind", "path", "expected"),
    [
        ('"7"', int, "payload", "expected a whole number"),
        ("true", int, "payload", "expected a whole number"),
        ("NaN", float, "payload", "expected a number"),
        ('"x"', bool, "payload", "expected true or false"),
        ('"much"', Decimal, "payload", "expected a decimal"),
        ('"tomorrow"', datetime, "payload", "expected an instant"),
        ("[1, 2]", tuple[int], "payload", "expected a list of 1"),
        ('[1, "x"]', list[int], "payload[1]", "expected a whole number"),
        ('{"a": "x"}', dict[str, int], "payload.a", "expected a whole number"),
        ('"green"', Colour, "payload", "no Colour; expected one of 'r'"),
        (str(10**400), float, "payload", "expected a number a float can hold"),
        (str(10**400), timedelta, "payload", "expected a duration"),
        ('"z"', Literal["x", "y"], "payload", "expected one of 'x', 'y'"),
        ("[]", int | str, "payload", "expected int or str"),
        ("7", Approval, "payload", "expected an object: Approval(by: str"),
        ('{"by": "ana", "when": 1}', Approval, "payload", "has no field 'when'"),
        ("{}", Approval, "payload", "needs the field 'by'"),
        ('{"by": ""}', Approval, "payload", "ValueError: nobody approved"),
        ('{"by": "a", "lines": [{"sku": "b", "price": "x"}]}', Approval, "payload.lines[0].price", "a decimal"),
        ('{"stars": "many"}', Review, "payload.stars", "valid integer"),
        ('{"stars": 1, "tags": [1]}', Review, "payload.tags[0]", "valid string"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused_with_its_path(text: str, kind: Any, path: str, expected: str) -> None:
    with pytest.raises(BadValue) as refused:
        from_plain(json.loads(text), kind, path="payload")
    assert refused.value.path == path
    assert str(refused.value).startswith(f"{path}: ")
    assert expected in str(refused.value)


def test_a_type_is_told_in_words_without_modules() -> None:
    assert signature_text(Line) == "Line(sku: str, price: Decimal)"
    assert "lines: tuple[Line, ...] = ..." in signature_text(Approval)
    assert signature_text(Review) == "Review(stars: int, tags: list[str] = ...)"
    assert (signature_text(int), signature_text(None), signature_text(Any)) == ("int", "", "")


def test_a_signal_is_found_by_name_a_typed_one_before_others_of_the_name() -> None:
    typed = Signal("plain.approved", Approval)
    loose = Signal("plain.approved")
    assert signals["plain.approved"] is typed
    assert loose.type is None
    assert payload_of("plain.approved", {"by": "ana"}) == Approval("ana")
    assert payload_of("plain.unheard-of", {"by": "ana"}) == {"by": "ana"}
    with pytest.raises(BadValue, match=r"^payload\.by: 7; expected text"):
        payload_of("plain.approved", {"by": 7})


def test_signals_that_nobody_keeps_are_forgotten() -> None:
    for number in range(50):
        Signal(f"plain.short-lived-{number}")
    gc.collect()
    assert not [name for name in signals if name.startswith("plain.short-lived-")]
