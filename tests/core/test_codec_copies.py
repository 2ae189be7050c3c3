"""What a copy keeps besides being equal, and that it shares nothing with its original."""

from __future__ import annotations

from collections import defaultdict, deque
from datetime import datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pytest

from durable_celery.codec import copy
from durable_celery.errors import StepFailed, WorkflowError
from tests.core.codec_values import BERLIN, ODD_OFFSET, OFFSET, Address, Carrier, Color, Counted, Line, Mode, customer


def test_a_bool_stays_a_bool_beside_an_int() -> None:
    assert [type(item) for item in copy([True, 1, 1.0])] == [bool, int, float]


def test_the_order_of_a_dict_is_kept() -> None:
    assert list(copy({"b": 1, "a": (2,), "c": 3})) == ["b", "a", "c"]


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
