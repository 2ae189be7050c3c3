"""How deep and how long a value may be, and that it may not contain itself."""

from __future__ import annotations

from typing import Any

import pytest

from durable_celery.codec import encode
from durable_celery.errors import NotSerializable, PayloadTooLarge
from tests.core.codec_refusing import Item, error_of


def test_a_list_that_contains_itself_is_refused() -> None:
    cycle: list[Any] = [1]
    cycle.append({"again": cycle})

    error = error_of(cycle, "result")

    assert error.path == "result[1]['again']"
    assert "contains itself" in str(error)


def test_a_dataclass_that_contains_itself_is_refused() -> None:
    item = Item(None)
    item.name = (item,)

    assert error_of(item, "result").path == "result.name[0]"


def test_a_value_that_occurs_twice_is_no_cycle() -> None:
    shared = Item("a")

    assert encode([shared, [shared], (), ((),)])


@pytest.mark.parametrize("depth", [101, 5_000, 100_000])
@pytest.mark.parametrize("wrap", [lambda inner: [inner], lambda inner: (inner,), lambda inner: {"a": inner}, Item])
def test_nesting_too_deep_is_refused_with_the_place(depth: int, wrap: Any) -> None:
    value: Any = 1
    for _ in range(depth):
        value = wrap(value)

    error = error_of(value, "result")

    assert "deeper than 100 levels" in str(error)
    assert error.path.startswith("result")
    while not isinstance(value, int):  # taken apart by hand: a deep chain of dataclasses overflows its own destructor
        value = next(iter(value.values())) if isinstance(value, dict) else getattr(value, "name", None) or value[0]


@pytest.mark.parametrize("wrap", [lambda inner: [inner], lambda inner: (inner,), Item])
def test_a_hundred_levels_are_kept(wrap: Any) -> None:
    value: Any = 1
    for _ in range(100):
        value = wrap(value)

    assert encode(value)


def test_a_stack_nearly_used_up_is_no_recursion_error() -> None:
    value: Any = 1
    for _ in range(90):
        value = (value,)

    def at_the_end_of_the_stack() -> str:
        try:
            return at_the_end_of_the_stack()
        except RecursionError:
            return outcome()

    def outcome() -> str:
        try:
            return encode(value)
        except NotSerializable as error:
            return str(error)

    assert "nested too deep for the stack" in at_the_end_of_the_stack()


def test_a_text_at_the_limit_is_kept() -> None:
    assert encode("a" * 98, limit=100) == '"' + "a" * 98 + '"'


def test_a_text_over_the_limit_says_what_how_large_and_what_is_allowed() -> None:
    with pytest.raises(PayloadTooLarge) as caught:
        encode(["a" * 2_000], root="the result of shop.steps.charge", limit=1_024)

    error = caught.value
    assert (error.path, error.size, error.limit) == ("the result of shop.steps.charge", 2_004, 1_024)
    assert str(error).startswith("the result of shop.steps.charge is 2,004 bytes as stored, more than the 1,024")


def test_a_limit_counts_bytes_as_stored() -> None:
    with pytest.raises(PayloadTooLarge) as caught:
        encode("\0", limit=7)

    assert caught.value.size == len('"\\u0000"')
