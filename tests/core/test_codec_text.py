"""Odd characters, lazy and marked text, and values as a line of text."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import date, datetime
from decimal import Decimal
from enum import Enum
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from durable_celery.codec import copy, decode, encode, preview
from durable_celery.errors import NotSerializable

ODD = {
    "nul": "a\x00b",
    "controls": "\x01\x1f\x7f\x80\x85\u2028\u2029",
    "high-surrogate": "\ud800",
    "low-surrogate": "\udfff",
    "surrogates-backwards": "\ude00\ud83d",
    "halves-of-an-emoji": "\ud83d\ude00",
    "halves-beside-the-emoji": "😀\ud83d\ude00\ud83d\ude00😀",
    "emoji": "😀👩\u200d👩\u200d👧",
    "last-character": "\U0010ffff",
    "byte-order-mark": "\ufeff",
    "backslashes": '\\ud83d\\ude00 "$":',
}


@pytest.mark.parametrize("text", ODD.values(), ids=ODD.keys())
def test_o45_odd_characters_are_stored_without_loss(text: str) -> None:
    for value in (text, [text], {text: text}, (text,), {"$": {text: (text,)}}, {text}):
        stored = encode(value)

        assert decode(stored) == value
        assert stored.isascii()
        assert "\0" not in stored


@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf")])
def test_o45_what_json_columns_refuse_never_gets_there(number: float) -> None:
    for value in (number, [number], {"a": (number,)}):
        with pytest.raises(NotSerializable):
            encode(value)


@given(st.text(st.characters(exclude_categories=())))
def test_o45_any_text_is_stored_without_loss(text: str) -> None:
    stored = encode({"text": text, "again": (text,)})

    assert decode(stored) == {"text": text, "again": (text,)}
    assert stored.isascii()


# -- text made plain ----------------------------------------------------------------------------------------------

Promise = type("Promise", (), {"__module__": "django.utils.functional"})


class Lazy(Promise):  # type: ignore[misc, valid-type]
    """Lazy text, as far as the codec looks; two of them are two keys."""

    def __str__(self) -> str:
        return "same"


def test_o69_a_lazy_translation_is_stored_as_its_text_of_that_moment() -> None:
    functional = pytest.importorskip("django.utils.functional")
    language = "en"
    lazy = functional.lazy(lambda: {"en": "Order received", "de": "Bestellung eingegangen"}[language], str)()

    language = "de"
    stored = encode({"subject": lazy, "lines": (lazy,), "key": {lazy: 1}})
    language = "en"

    back = decode(stored)
    assert back == {
        "subject": "Bestellung eingegangen",
        "lines": ("Bestellung eingegangen",),
        "key": {"Bestellung eingegangen": 1},
    }
    assert type(back["subject"]) is type(next(iter(back["key"]))) is str


def test_o69_a_lazy_object_is_refused_without_being_evaluated() -> None:
    functional = pytest.importorskip("django.utils.functional")

    def query() -> None:
        raise AssertionError("a lazy object was evaluated, which may query the database")

    with pytest.raises(NotSerializable, match="lazy object of Django"):
        encode([functional.SimpleLazyObject(query)])
    assert "SimpleLazyObject" in preview([functional.SimpleLazyObject(query)])


def test_two_keys_that_become_the_same_text_are_refused() -> None:
    with pytest.raises(NotSerializable, match="the same once they are plain text"):
        encode({Lazy(): 1, Lazy(): 2})


def test_text_marked_safe_comes_back_as_plain_text() -> None:
    safestring = pytest.importorskip("django.utils.safestring")

    back = copy([safestring.mark_safe("<b>"), {safestring.mark_safe("k"): 1}])

    assert back == ["<b>", {"k": 1}]
    assert type(back[0]) is str
    assert not hasattr(back[0], "__html__")


def test_the_time_of_a_frozen_clock_is_stored_as_a_real_one() -> None:
    frozen = {"__module__": "freezegun.api"}
    fake_datetime = type("FakeDatetime", (datetime,), frozen)
    fake_date = type("FakeDate", (date,), frozen)

    back = copy((fake_datetime(2026, 1, 2, 3, 4, fold=1), fake_date(2026, 1, 2)))

    assert back == (datetime(2026, 1, 2, 3, 4), date(2026, 1, 2))  # noqa: DTZ001
    assert (type(back[0]), back[0].fold, type(back[1])) == (datetime, 1, date)


# -- a line of text -----------------------------------------------------------------------------------------------


class Carrier(Enum):
    DHL = "dhl"


class Pair(NamedTuple):
    left: Any
    right: Any


@dataclass
class Receipt:
    id: int
    amount: Decimal
    card: str = field(default="4111", repr=False)


class Failing:
    def __repr__(self) -> str:
        raise ValueError


class Wordy:
    def __repr__(self) -> str:
        return "two\nlines\x00\ud800 and é"


class Record:
    _meta = object()
    pk = 7


PREVIEWS: dict[str, tuple[Any, str]] = {
    "plain": ({"a": [1, "x", None], "b": 1.5}, "{'a': [1, 'x', None], 'b': 1.5}"),
    "tuples": (((), (1,), (1, 2)), "((), (1,), (1, 2))"),
    "sets": ([set(), {1}, frozenset(), frozenset({1})], "[set(), {1}, frozenset(), frozenset({1})]"),
    "scalars": ((Decimal("1.5"), date(2026, 1, 2)), "(Decimal('1.5'), datetime.date(2026, 1, 2))"),
    "enum": (Carrier.DHL, "Carrier.DHL"),
    "named-tuple": (Pair(1, "b"), "Pair(left=1, right='b')"),
    "dataclass": (Receipt(1, Decimal(2)), "Receipt(id=1, amount=Decimal('2'))"),
    "model": (Record(), "<Record pk=7>"),
    "failing-repr": (Failing(), f"<{__name__}.Failing>"),
    "unprintable": (Wordy(), "two lines\\x00\\ud800 and é"),
    "line-breaks": ("a\nb", "'a\\nb'"),
    "long-int": (7**9000, hex(7**9000)[:197] + "..."),
}


@pytest.mark.parametrize(("value", "line"), PREVIEWS.values(), ids=PREVIEWS.keys())
def test_a_preview_is_one_readable_line(value: Any, line: str) -> None:
    assert preview(value) == line


def test_a_preview_is_cut_at_the_length() -> None:
    assert preview("x" * 1_000_000, 20) == "'" + "x" * 16 + "..."
    assert len(preview({str(n): [n] * n for n in range(1_000)})) == 200
    assert preview([1, 2, 3], 9) == "[1, 2, 3]"
    assert len(preview([1, 2, 3], 2)) <= 2


def test_a_preview_of_a_cycle_ends() -> None:
    cycle: list[Any] = []
    cycle.append(cycle)

    assert preview(cycle) == "[[[[[[[[...]]]]]]]]"


@given(st.recursive(st.text(st.characters(exclude_categories=())) | st.floats(), lambda inner: st.lists(inner)))
def test_a_preview_can_be_stored_in_any_column(value: Any) -> None:
    line = preview(value, 80)

    assert len(line) <= 80
    assert "\n" not in line
    assert "\0" not in line
    assert line.encode()


def test_stored_text_is_json_that_other_tools_read() -> None:
    assert json.loads(encode({"at": date(2026, 1, 2)})) == {"at": {"$": "date", "v": "2026-01-02"}}
