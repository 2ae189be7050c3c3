"""Names things are found by: keys, instance ids, positions, idempotency keys."""

from __future__ import annotations

import random
import uuid
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from durable_celery.core.identity import (
    check_key,
    compensation_of,
    idempotency_key,
    instance_id_of,
    key_hash,
    member,
    new_id,
    sort_key,
)
from durable_celery.errors import BadValue, UsageError

# -- keys ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", ["order-42", " a", "a ", "A", "ä" * 191, "0", "🦊", "a/b?c=d"])
def test_o38_any_text_is_a_key(key: str) -> None:
    assert check_key(key) == key


def test_o38_none_is_no_key() -> None:
    assert check_key(None) is None


@pytest.mark.parametrize(
    ("key", "says"),
    [
        ("", "blank"),
        (" ", "blank"),
        ("\t\n", "blank"),
        (0, "int 0"),
        (42, "write key=str(...)"),
        (b"order", "bytes"),
        (False, "bool"),
        ("a" * 192, "192 characters"),
        ("a" * 300, "at most 191"),
        ("a\0b", "NUL"),
        ("\ud800", "surrogate"),
    ],
)
def test_o38_an_odd_key_is_refused(key: Any, says: str) -> None:
    with pytest.raises(BadValue) as caught:
        check_key(key)

    assert says in str(caught.value)
    assert caught.value.path == "key"
    assert isinstance(caught.value, UsageError)
    assert isinstance(caught.value, ValueError)


def test_o38_the_hash_tells_apart_what_collations_do_not() -> None:
    keys = ["a", "A", "ä", "á", "a ", " a", "a\u200d", "ａ"]

    hashes = {key_hash("shop.order", key) for key in keys}

    assert len(hashes) == len(keys)
    assert all(len(text) == 64 and text.isascii() for text in hashes)


def test_the_hash_belongs_to_one_workflow() -> None:
    assert key_hash("shop.order", "7") != key_hash("shop.refund", "7")
    assert key_hash("a", "b\0c") == key_hash("a\0b", "c")  # no name and no key has a NUL, so these two never meet
    assert key_hash("shop.order", "7") == key_hash("shop.order", "7")


# -- ids -----------------------------------------------------------------------------------------------------------


def test_ids_of_later_milliseconds_sort_later() -> None:
    ids = [new_id(1_700_000_000_000 + later, bytes([255 - later] * 10)) for later in range(50)]

    assert ids == sorted(ids)
    assert [str(i) for i in ids] == sorted(str(i) for i in ids)


@given(st.integers(0, 2**48 - 1), st.binary(min_size=10, max_size=10))
def test_an_id_is_a_uuid_of_version_7(milliseconds: int, entropy: bytes) -> None:
    made = new_id(milliseconds, entropy)

    assert made.version == 7
    assert made.variant == uuid.RFC_4122
    assert made.int >> 80 == milliseconds


def test_entropy_makes_ids_of_one_millisecond_differ() -> None:
    made = {new_id(1_700_000_000_000, random.Random(i).randbytes(10)) for i in range(1000)}

    assert len(made) == 1000


def test_a_task_id_that_is_a_uuid_is_the_instance_id() -> None:
    text = "0198c0de-0000-7000-8000-000000000001"

    assert instance_id_of(text) == uuid.UUID(text)
    assert instance_id_of(text.upper()) == uuid.UUID(text)


def test_another_task_id_finds_the_same_instance_each_time() -> None:
    assert instance_id_of("nightly-report") == instance_id_of("nightly-report")
    assert instance_id_of("nightly-report") != instance_id_of("nightly-report ")
    assert instance_id_of("nightly-report").version == 5


# -- positions -----------------------------------------------------------------------------------------------------


def test_positions_sort_as_the_body_yielded_them() -> None:
    ordered = ["1", "2", "2.0", "2.0.0", "2.0.10", "2.1", "2.2", "2.10", "3", "10", "11.0"]
    shuffled = random.Random(7).sample(ordered, len(ordered))

    assert sorted(shuffled, key=sort_key) == ordered


def test_compensations_sort_after_everything_newest_position_first() -> None:
    ordered = ["1", "9", "10.3", "10.3~", "10.0~", "9~", "1~"]

    backwards = ordered[::-1]

    assert sorted(backwards, key=sort_key) == ordered


def test_a_path_is_made_of_members_and_compensations() -> None:
    assert member("2", 0) == "2.0"
    assert member("2.0", 11) == "2.0.11"
    assert compensation_of("2.0.11") == "2.0.11~"


def test_idempotency_keys_differ_by_instance_and_position_and_by_nothing_else() -> None:
    one, other = uuid.UUID(int=1), uuid.UUID(int=2)

    assert idempotency_key(one, "3") == idempotency_key(str(one), "3") == f"{one}:3"
    assert len({idempotency_key(i, p) for i in (one, other) for p in ("3", "3~", "3.0")}) == 6
