"""Classes and time zones whose values the tests of the codec write and read."""

from __future__ import annotations

import enum
import uuid
from collections import namedtuple
from dataclasses import InitVar, dataclass, field
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from functools import cached_property
from typing import Any, Generic, NamedTuple, TypeVar
from zoneinfo import ZoneInfo

import pydantic

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
