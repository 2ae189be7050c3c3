"""Types that a project registers: what is taken, and which function reads what."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from durable_celery.codec import copy, decode, encode, register_type
from durable_celery.errors import BadValue, DurableError, UsageError
from tests.core.modules import Module

HERE = __name__


class Money:
    def __init__(self, amount: Decimal) -> None:
        self.amount = amount

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Money) and other.amount == self.amount


class Price(Money):
    """A subclass of a registered class."""


register_type(Money, encode=lambda money: (money.amount,), decode=lambda stored: Money(*stored))


def test_a_registered_type_comes_back() -> None:
    back = copy([Money(Decimal("1.5"))])

    assert back == [Money(Decimal("1.5"))]
    assert type(back[0]) is Money


def test_a_subclass_of_a_registered_type_is_not_taken_for_it() -> None:
    with pytest.raises(DurableError, match="Price"):
        encode(Price(Decimal(1)))


def test_a_second_registration_replaces_the_first(module: Module) -> None:
    kind = type("Twice", (), {})
    module("codec_twice", Twice=kind)
    register_type(kind, encode=lambda value: "first", decode=lambda text: text)
    register_type(kind, encode=lambda value: "second", decode=lambda text: text.upper())

    assert copy(kind()) == "SECOND"


def test_a_registered_type_is_found_by_an_old_name() -> None:
    text = encode(Money(Decimal(2))).replace(f"{HERE}:Money", "shop.old:Geld")
    register_type(
        Money, encode=lambda money: (money.amount,), decode=lambda amount: Money(*amount), aliases=("shop.old.Geld",)
    )

    assert decode(text) == Money(Decimal(2))


@pytest.mark.parametrize("known", [int, str, list, dict, tuple, set, type(None), Decimal])
def test_a_type_known_from_the_start_cannot_be_registered(known: Any) -> None:
    with pytest.raises(BadValue, match="is known already"):
        register_type(known, encode=str, decode=str)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("Money", str, str), "takes a class first"),
        ((Money, None, str), "encode must be callable"),
        ((Money, str, 3), "decode must be callable"),
        ((Money, str, str, "shop.Geld"), "sequence of names"),
        ((Money, str, str, ["Geld"]), "dotted name"),
    ],
)
def test_a_wrong_registration_is_refused_at_once(arguments: Any, said: str) -> None:
    with pytest.raises(BadValue, match=said) as caught:
        register_type(*arguments)
    assert isinstance(caught.value, UsageError)
    assert isinstance(caught.value, ValueError)
