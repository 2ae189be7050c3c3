"""What goes in comes out: equal, and of the same type."""

from __future__ import annotations

import enum
import json
import uuid
from collections import Counter, OrderedDict, defaultdict, deque, namedtuple
from dataclasses import InitVar, dataclass, field
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from functools import cached_property
from typing import Any, Generic, NamedTuple, TypeVar
from zoneinfo import ZoneInfo

import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from durable_celery.codec import copy, decode, encode
from durable_celery.errors import StepFailed, WorkflowError

T = TypeVar("T")


class Color(enum.Enum):
    RED = 1
    CRIMSON = 1  # noqa: PIE796 - a second name
    BLUE = (2, "b")


class Size(int, enum.Enum):
    SMALL = 1


class Level(enum.IntEnum):
    LOW = 10


class Carrier(str, enum.Enum):
    DHL = "dhl"


class Right(enum.Flag):
    READ = enum.auto()
    WRITE = enum.auto()
    BOTH = READ | WRITE


class Mode(enum.IntFlag):
    A = 1
    B = 2


class Outer:
    class State(enum.Enum):
        OPEN = "open"

    @dataclass
    class Part:
        n: int


@dataclass
class Line:
    sku: str
    price: Decimal
    tags: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    id: uuid.UUID
    lines: tuple[Line, ...] = ()
    placed_at: datetime | None = None


@dataclass
class Counted:
    n: int
    doubled: int = field(init=False)
    seed: InitVar[int] = 0

    def __post_init__(self, seed: int) -> None:
        self.n += 1
        self.doubled = self.n * 2
        self.note = f"seed {seed}"

    @cached_property
    def lazy(self) -> object:
        return object()


@dataclass(frozen=True)
class Point:
    x: float = 0.0
    y: float = -0.0


@dataclass
class Box(Generic[T]):
    content: T


class Pair(NamedTuple):
    left: Any
    right: Any = None


Plain = namedtuple("Plain", "a b")


class Address(pydantic.BaseModel):
    street: str
    zip: int = 0


class Customer(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="allow")
    name: str = pydantic.Field(alias="fullName")
    address: Address
    secret: str = pydantic.Field(default="", exclude=True)
    born: date | None = None
    _visits: int = pydantic.PrivateAttr(default=0)


class Tags(pydantic.RootModel[list[str]]):
    pass


class Frozen(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(frozen=True)
    values: tuple[Decimal, ...] = ()

    @pydantic.field_validator("values")
    @classmethod
    def double(cls, values: tuple[Decimal, ...]) -> tuple[Decimal, ...]:
        return tuple(value * 2 for value in values)


@pydantic.dataclasses.dataclass
class Checked:
    n: int


def customer() -> Customer:
    made = Customer.model_validate(
        {"fullName": "Ana", "address": Address(street="Rua 1"), "secret": "s", "nick": "A", "$": 1}
    )
    made._visits = 3
    return made


BERLIN = ZoneInfo("Europe/Berlin")
OFFSET = timezone(timedelta(hours=5, minutes=30))
ODD_OFFSET = timezone(-timedelta(hours=1, seconds=7, microseconds=5))

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


def test_a_bool_stays_a_bool_beside_an_int() -> None:
    assert [type(item) for item in copy([True, 1, 1.0])] == [bool, int, float]


def test_the_order_of_a_dict_is_kept() -> None:
    assert list(copy({"b": 1, "a": (2,), "c": 3})) == ["b", "a", "c"]


def test_equal_sets_give_equal_texts() -> None:
    words = [f"word-{n}" for n in range(50)]
    forwards, backwards = set(words), set()
    backwards.update(words[::-1])

    assert encode(forwards) == encode(backwards)
    assert encode(forwards | {(1,)}) == encode({(1,)} | backwards)


def test_a_fold_is_kept() -> None:
    moment = datetime(2026, 10, 25, 2, 30, tzinfo=BERLIN, fold=1)

    back = copy(moment)

    assert back.fold == 1
    assert back.utcoffset() == timedelta(hours=1)
    assert back.tzinfo is BERLIN


@pytest.mark.parametrize("zone", [timezone.utc, OFFSET, ODD_OFFSET, BERLIN, timezone(timedelta(0), "Z")], ids=str)
def test_a_time_zone_is_kept_with_its_type_and_name(zone: Any) -> None:
    back = copy(datetime(2026, 1, 2, tzinfo=zone))

    assert back.tzinfo == zone
    assert type(back.tzinfo) is type(zone)
    assert back.tzname() == datetime(2026, 1, 2, tzinfo=zone).tzname()


def test_an_enum_member_comes_back_as_the_very_member() -> None:
    assert copy(Color.BLUE) is Color.BLUE
    assert copy([Mode.A | Mode.B])[0] is Mode.A | Mode.B
    assert next(iter(copy({Carrier.DHL: 1}))) is Carrier.DHL


def test_attributes_set_after_construction_are_kept_and_computed_ones_are_not() -> None:
    counted = Counted(4, seed=3)
    assert counted.lazy

    back = copy(counted)

    assert (back.n, back.doubled, back.note) == (5, 10, "seed 3")
    assert "lazy" not in vars(back)


def test_no_constructor_runs_when_a_dataclass_is_read_back() -> None:
    assert copy(copy(Counted(1))).n == 2


def test_a_model_keeps_extra_private_excluded_and_set_fields() -> None:
    back = copy(customer())

    assert back.model_extra == {"nick": "A", "$": 1}
    assert (back._visits, back.secret) == (3, "s")
    assert back.model_fields_set == customer().model_fields_set
    assert type(back.address) is Address


def test_default_factories_and_lengths_still_work() -> None:
    groups = copy(defaultdict(list, a=[1]))
    groups["b"].append(2)
    last = copy(deque([1, 2], maxlen=2))
    last.append(3)

    assert groups == {"a": [1], "b": [2]}
    assert list(last) == [2, 3]


def test_an_error_of_this_package_comes_back_with_its_fields() -> None:
    error = StepFailed("card declined", step="shop.charge", attempts=3, errors=(WorkflowError("inner"),))

    back = copy((error,))[0]

    assert type(back) is StepFailed
    assert (str(back), back.step, back.attempts, back.lost) == ("card declined", "shop.charge", 3, False)
    assert type(back.errors[0]) is WorkflowError


def test_a_copy_shares_nothing_with_the_original() -> None:
    original: dict[str, Any] = {"lines": [Line("a", Decimal(1))], "plain": [1]}

    back = copy(original)
    back["lines"][0].tags.append("x")
    back["plain"].append(2)

    assert original == {"lines": [Line("a", Decimal(1))], "plain": [1]}


def test_a_list_that_occurs_twice_comes_back_as_two() -> None:
    shared = [1]

    first, second = copy([shared, shared])

    assert first == second
    assert first is not second


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
