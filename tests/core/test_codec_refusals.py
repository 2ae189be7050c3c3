"""What cannot be kept is refused by name, with its place and what to do."""

from __future__ import annotations

import enum
import functools
import io
import itertools
import os
import pickle
import threading
from collections import OrderedDict, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta, tzinfo
from decimal import Decimal
from typing import Any, NamedTuple

import pydantic
import pytest

from durable_celery.codec import register_type
from durable_celery.errors import DurableError, NotSerializable, PayloadError
from tests.core.codec_refusing import Item, error_of

NAN = float("nan")
INFINITY = float("inf")


@dataclass
class Order:
    items: list[Item]


@dataclass
class Unset:
    content: int = field(init=False)


class Pair(NamedTuple):
    left: Any
    right: Any


class Model(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="allow")
    content: Any
    _hidden: Any = pydantic.PrivateAttr(default=None)


class Options:
    pass


class Customer:
    """Looks like a Django model, as far as the codec looks."""

    _meta = Options()
    pk = 7

    def __repr__(self) -> str:
        raise AssertionError("the repr of a model may query the database")


class Money:
    def __init__(self, amount: Any) -> None:
        self.amount = amount


class Broken:
    pass


class Itself:
    pass


class Words(str):
    pass


class Number(int):
    pass


class Rows(list[int]):
    pass


class Zone(tzinfo):
    def utcoffset(self, moment: datetime | None) -> timedelta:
        return timedelta(0)

    def tzname(self, moment: datetime | None) -> str:
        return "zone"

    def dst(self, moment: datetime | None) -> timedelta:
        return timedelta(0)


class Undo(Exception):
    pass


register_type(Money, encode=lambda money: {"amount": money.amount}, decode=lambda stored: Money(**stored))
register_type(Broken, encode=lambda broken: 1 / 0, decode=lambda stored: Broken())
register_type(Itself, encode=lambda itself: itself, decode=lambda stored: stored)


def generator() -> Iterator[int]:
    yield 1


def module_function() -> None: ...


def model_with_private(content: Any) -> Model:
    model = Model(content=1)
    model._hidden = content
    return model


def with_attribute(content: Any) -> Item:
    item = Item("a")
    item.client = content  # type: ignore[attr-defined]
    return item


def local_dataclass() -> Any:
    @dataclass
    class Local:
        n: int

    return Local(1)


def local_enum() -> Any:
    class Local(enum.Enum):
        A = 1

    return Local.A


def shadowed() -> Any:
    return type("Item", (Item,), {"__module__": __name__, "__qualname__": "Item"})("a")


PLACES: dict[str, tuple[Any, str, str]] = {
    "root": (NAN, "args", "args"),
    "list": ([0, 1, [NAN]], "result", "result[2][0]"),
    "tuple": ((0, (NAN,)), "args", "args[1][0]"),
    "dict": (({"order": {"total": NAN}},), "args", "args[0]['order']['total']"),
    "dict-with-tag-key": ({"$": NAN}, "args", "args['$']"),
    "dataclass": (Order([Item("a"), Item("b"), Item("c"), Item(NAN)]), "result", "result.items[3].name"),
    "attribute": ([with_attribute(NAN)], "result", "result[0].client"),
    "named-tuple": (Pair(1, [NAN]), "result", "result.right[0]"),
    "model": (Model(content=[NAN]), "result", "result.content[0]"),
    "model-extra": (Model(content=1, more=NAN), "result", "result.more"),  # type: ignore[call-arg]
    "model-private": (model_with_private(NAN), "result", "result._hidden"),
    "set": ([{(1, NAN)}], "result", "result[0]{item}[1]"),
    "ordered-dict": (OrderedDict(a=NAN), "result", "result['a']"),
    "defaultdict": (defaultdict(list, a=[NAN]), "result", "result['a'][0]"),
    "registered": ([Money(NAN)], "result", "result[0]['amount']"),
    "key": ([{1: "a"}], "result", "result[0][1]"),
    "after-plain-values": ({"plain": [1] * 5, "odd": (1, 2, NAN)}, "result", "result['odd'][2]"),
}


@pytest.mark.parametrize(("value", "root", "path"), PLACES.values(), ids=PLACES.keys())
def test_o46_a_refusal_names_the_exact_place(value: Any, root: str, path: str) -> None:
    error = error_of(value, root)

    assert error.path == path
    assert str(error).startswith(f"{path} cannot be stored: ")


def test_the_place_stands_before_the_owner_of_the_value() -> None:
    error = error_of([{"rate": NAN}], "args[0] of shop.charge")

    assert error.path == "args[0][0]['rate']"
    assert str(error).startswith("args[0][0]['rate'] of shop.charge cannot be stored: ")


REFUSED: dict[str, tuple[Any, str, str]] = {
    "nan": (NAN, "nan", "None"),
    "infinity": (-INFINITY, "-inf", "None"),
    "decimal-nan": (Decimal("sNaN"), "Decimal('sNaN')", "None"),
    "decimal-infinity": (Decimal("Infinity"), "Decimal('Infinity')", "None"),
    "int-key": ({1: "a"}, "the key 1 is of the type int", "str(key)"),
    "int-key-that-would-hide-another": ({1: "a", "1": "b"}, "the key 1", "str(key)"),
    "none-key": ({None: 1}, "the key None", "str(key)"),
    "tuple-key": (OrderedDict({(1, 2): 1}), "the key (1, 2)", "list of pairs"),
    "model-instance": (Customer(), "a model instance", "primary key"),
    "lambda": (lambda: 1, "a lambda", "inside the step"),
    "function": (module_function, "a function, module_function", "inside the step"),
    "builtin-function": (os.system, "a function, system", "inside the step"),
    "method": (Money(1).__init__, "a function, Money.__init__", "inside the step"),  # type: ignore[misc]
    "partial": (functools.partial(print), "a function", "inside the step"),
    "class": (Money, "a class", "its name"),
    "generator": (generator(), "a generator that has not run", "use yield from"),
    "iterator": (itertools.count(), "an iterator", "list(value)"),
    "range": (range(3), "a range", "list(value)"),
    "dict-keys": ({}.keys(), "a view of a dict", "list(value)"),
    "complex": (1j, "a complex number", "value.real"),
    "memoryview": (memoryview(b"a"), "a memoryview", "bytes(value)"),
    "module": (os, "a module", "its name"),
    "lock": (threading.Lock(), "a lock", "where it is used"),
    "thread": (threading.Thread(), "a thread", "where it is used"),
    "file": (io.StringIO(), "an open file", "Pass its path"),
    "exception": (Undo("x"), "an exception", "str(error)"),
    "object": (object(), "builtins.object", "register_type()"),
    "str-subclass": (Words("a"), "a subclass of str", "str(value)"),
    "int-subclass": (Number(1), "a subclass of int", "int(value)"),
    "list-subclass": (Rows(), "a subclass of list", "list(value)"),
    "defaultdict-of-a-lambda": (defaultdict(lambda: 1), "a defaultdict", "dict(value)"),
    "local-dataclass": (local_dataclass(), "inside a function", "top of a module"),
    "local-enum": (local_enum(), "inside a function", "top of a module"),
    "class-behind-another": (shadowed(), "not what its module holds", "top of a module"),
    "field-without-value": (Unset(), "the field content", "default"),
    "model-without-value": (Model.model_construct(), "the field content", "Set the field"),
    "unknown-time-zone": (datetime(2026, 1, 1, tzinfo=Zone()), "Zone", "zoneinfo"),
    "broken-registration": (Broken(), "ZeroDivisionError", "register_type()"),
    "registration-without-effect": (Itself(), "returned the value itself", "plain data"),
}


@pytest.mark.parametrize(("value", "what", "hint"), REFUSED.values(), ids=REFUSED.keys())
def test_o46_what_cannot_be_kept_is_refused_with_what_to_do(value: Any, what: str, hint: str) -> None:
    for error in (error_of(value), error_of({"deep": [value]}), error_of((value,))):
        assert what in str(error)
        assert hint in str(error)


def test_a_command_of_a_workflow_is_to_be_yielded_first() -> None:
    command = type("StepCommand", (type("Command", (), {"__module__": "durable_celery.core.commands"}),), {})

    assert "Yield it first" in str(error_of(([command()],), "args"))
    assert error_of(([command()],), "args").path == "args[0][0]"


def test_a_celery_signature_is_to_be_yielded_first() -> None:
    celery = pytest.importorskip("celery")

    assert "Yield it first" in str(error_of(celery.signature("shop.tasks.pay", args=(1,))))


def test_a_model_instance_is_refused_without_being_looked_at() -> None:
    error = error_of({"customer": Customer()}, "args")

    assert str(error) == (
        "args['customer'] cannot be stored: it is a model instance "
        f"({Customer.__module__}.Customer). Pass its primary key, and load it inside the step."
    )


def test_a_refusal_does_not_show_the_value() -> None:
    assert "hunter2" not in str(error_of({"password": Words("hunter2")}))


def test_a_refusal_pickles_with_its_path() -> None:
    error = pickle.loads(pickle.dumps(error_of([NAN], "result")))

    assert (type(error), error.path) == (NotSerializable, "result[0]")
    assert isinstance(error, PayloadError)
    assert isinstance(error, DurableError)
