"""What goes in comes out: equal, and of the same type."""

from __future__ import annotations

import json
import uuid
from collections import Counter, OrderedDict, defaultdict, deque
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from durable_celery.codec import copy, decode, encode
from tests.core.codec_values import (
    BERLIN,
    ODD_OFFSET,
    OFFSET,
    Address,
    Box,
    Carrier,
    Checked,
    Color,
    Counted,
    Frozen,
    Level,
    Line,
    Mode,
    Order,
    Outer,
    Pair,
    Plain,
    Point,
    Right,
    Size,
    Tags,
    customer,
)

VALUES: dict[str, Any] = {
    "none": None,
    "true": True,
    "false": False,
    "zero": 0,
    "one": 1,
    "negative": -7,
    "past-64-bits": 2**70,
    "thousands-of-digits": -(7**9000),
    "float": 0.1,
    "whole-float": 1.0,
    "negative-zero": -0.0,
    "huge-float": 1e308,
    "text": "text",
    "empty-text": "",
    "list": [1, [2, [None]]],
    "empty-list": [],
    "dict": {"a": 1, "b": {"c": [True, 1, 1.0]}},
    "dict-with-tag-key": {"$": "tuple", "v": [1]},
    "nested-tag-keys": {"$": {"$": {"$": None}}, "x": [{"$": 1}]},
    "dict-with-number-like-key": {"1": "a"},
    "dict-with-enum-key": {Carrier.DHL: 1, "ups": 2},
    "dict-with-odd-keys": {"ä": 1, "\0": 2, "\ud83d\ude00": 3, "😀": 4, "": 5},
    "tuple": (1, "a", (2,)),
    "empty-tuple": (),
    "set": {1, "a", (2, 3)},
    "empty-set": set(),
    "frozenset": frozenset({frozenset({1}), 2}),
    "bytes": b"\0\xff",
    "bytearray": bytearray(b"ab"),
    "decimal": Decimal("1.10"),
    "decimal-exponent": Decimal("1E+3"),
    "decimal-negative-zero": Decimal("-0.00"),
    "naive-datetime": datetime(2026, 1, 2, 3, 4, 5, 6),  # noqa: DTZ001
    "utc": datetime(2026, 1, 2, tzinfo=timezone.utc),
    "utc-zoneinfo": datetime(2026, 1, 2, tzinfo=ZoneInfo("UTC")),
    "offset": datetime(2026, 1, 2, tzinfo=OFFSET),
    "odd-offset": datetime(2026, 1, 2, tzinfo=ODD_OFFSET),
    "named-offset": datetime(2026, 1, 2, tzinfo=timezone(timedelta(hours=1), "CET")),
    "named-utc": datetime(2026, 1, 2, tzinfo=timezone(timedelta(0), "Z")),
    "zone": datetime(2026, 7, 2, 12, tzinfo=BERLIN),
    "first-pass-of-fold": datetime(2026, 10, 25, 2, 30, tzinfo=BERLIN),
    "second-pass-of-fold": datetime(2026, 10, 25, 2, 30, tzinfo=BERLIN, fold=1),
    "naive-fold": datetime(2026, 10, 25, 2, 30, fold=1),  # noqa: DTZ001
    "date": date(2026, 1, 2),
    "time": time(1, 2, 3, 4),
    "time-in-zone": time(1, 2, tzinfo=BERLIN, fold=1),
    "time-with-offset": time(1, 2, tzinfo=OFFSET),
    "timedelta": timedelta(days=-1, microseconds=1),
    "longest-timedelta": timedelta.max,
    "uuid": uuid.UUID(int=7),
    "enum": Color.RED,
    "enum-alias": Color.CRIMSON,
    "enum-with-tuple-value": Color.BLUE,
    "int-mixin": Size.SMALL,
    "int-enum": Level.LOW,
    "text-mixin": Carrier.DHL,
    "nested-enum": Outer.State.OPEN,
    "flag": Right.READ,
    "named-combination": Right.BOTH,
    "combination": Mode.A | Mode.B,
    "no-flag": Right(0),
    "unnamed-bits": Mode(9),
    "dataclass": Line("a", Decimal("1.5"), ["x"]),
    "frozen-slots-kw-only": Order(id=uuid.UUID(int=1), lines=(Line("a", Decimal(1)),)),
    "init-false-and-initvar": Counted(4, seed=3),
    "frozen": Point(1.5),
    "nested-dataclass": Outer.Part(1),
    "set-of-dataclasses": {Point(1.0), Point(2.0)},
    "generic-dataclass": Box[int](1),
    "named-tuple": Pair(1, Pair((2,), None)),
    "plain-named-tuple": Plain(b=[1], a=2),
    "model": customer(),
    "root-model": Tags(["a"]),
    "validated-once": Frozen(values=(Decimal("1.5"),)),
    "model-built-loosely": Address.model_construct(street="x"),
    "pydantic-dataclass": Checked(1),
    "ordered-dict": OrderedDict(b=1, a=(2,)),
    "counter": Counter("abca"),
    "defaultdict": defaultdict(list, a=[1]),
    "defaultdict-without-factory": defaultdict(None, a=1),
    "deque": deque([1, (2,)], maxlen=4),
}


@pytest.mark.parametrize("value", VALUES.values(), ids=VALUES.keys())
def test_o46_a_value_comes_back_equal_and_of_the_same_type(value: Any) -> None:
    text = encode(value)

    back = decode(text)

    assert back == value
    assert type(back) is type(value)
    assert text.isascii()
    assert encode(back) == text


@pytest.mark.parametrize("value", VALUES.values(), ids=VALUES.keys())
def test_o46_a_value_comes_back_the_same_from_inside_others(value: Any) -> None:
    nest = [{"k": (value, Box(value))}]

    ((back, box),) = [copy(nest)[0]["k"]]

    assert (back, box.content) == (value, value)
    assert type(back) is type(box.content) is type(value)


def test_plain_values_are_stored_as_plain_json() -> None:
    value = {"id": 7, "lines": [{"sku": "a", "price": 1.5}], "note": None}

    assert encode(value) == '{"id":7,"lines":[{"sku":"a","price":1.5}],"note":null}'
    assert json.loads(encode(value)) == value


def test_equal_sets_give_equal_texts() -> None:
    words = [f"word-{n}" for n in range(50)]
    forwards, backwards = set(words), set()
    backwards.update(words[::-1])

    assert encode(forwards) == encode(backwards)
    assert encode(forwards | {(1,)}) == encode({(1,)} | backwards)


scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=()))
    | st.binary()
    | st.decimals(allow_nan=False, allow_infinity=False)
    | st.datetimes(timezones=st.none() | st.just(timezone.utc) | st.sampled_from([BERLIN, OFFSET, ODD_OFFSET]))
    | st.dates()
    | st.times()
    | st.timedeltas()
    | st.uuids()
    | st.sampled_from([*Color, *Level, *Carrier, *Outer.State, Right.READ, Mode.A | Mode.B])
)
keys = st.text(st.characters(exclude_categories=())) | st.just("$") | st.sampled_from(Carrier)


def containers(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    items = st.lists(inner, max_size=4)
    return (
        items
        | items.map(tuple)
        | st.dictionaries(keys, inner, max_size=4)
        | st.sets(scalars, max_size=4)
        | st.frozensets(scalars, max_size=4)
        | st.builds(Box, inner)
        | st.builds(Pair, inner, inner)
        | st.builds(OrderedDict, st.dictionaries(keys, inner, max_size=3))
    )


def shape(value: Any) -> Any:
    """The types of a value and of everything in it."""
    if isinstance(value, dict):
        return type(value), [(type(key), shape(item)) for key, item in value.items()]
    if isinstance(value, (list, tuple)):
        return type(value), [shape(item) for item in value]
    if isinstance(value, (set, frozenset)):
        return type(value), Counter(type(item) for item in value)
    return (Box, shape(value.content)) if isinstance(value, Box) else type(value)


@given(st.recursive(scalars, containers, max_leaves=25))
def test_any_nested_value_comes_back_equal_and_of_the_same_types(value: Any) -> None:
    back = copy(value)

    assert back == value
    assert shape(back) == shape(value)
    assert encode(back) == encode(value)
