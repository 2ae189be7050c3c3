"""An empty string slipped past a check for None, and a row that nobody could address started over every 15 minutes.

A key is a non-blank, storable, not too long text or None; what collations take for one key stays two.
"""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connection, models

from django_app.models import Mailbox, WorkflowInstance, WorkflowKey
from durable_celery import UsageError, Workflow, workflow
from durable_celery.core.identity import KEY_LENGTH, key_hash

pytestmark = pytest.mark.django_db


@workflow(name="o38.plain")
def plain(number: int) -> Workflow[None]:
    yield from ()


@workflow(name="o38.keyed", key=lambda key: key)
def keyed(key: Any) -> Workflow[None]:
    yield from ()


REFUSED = [
    pytest.param("", "blank", id="empty"),
    pytest.param(" ", "blank", id="space"),
    pytest.param("\t\n ", "blank", id="white space"),
    pytest.param("\u2003", "blank", id="wide space"),
    pytest.param(0, "must be a str or None, got int 0", id="zero"),
    pytest.param(7, "must be a str or None, got int 7", id="int"),
    pytest.param(False, "must be a str or None, got bool False", id="bool"),
    pytest.param(b"order-7", "must be a str or None, got bytes", id="bytes"),
    pytest.param("x" * 300, "has 300 characters, at most 191 are allowed", id="300 characters"),
    pytest.param("x" * (KEY_LENGTH + 1), "has 192 characters", id="one character too long"),
    pytest.param("order\0-7", "has a NUL", id="NUL"),
    pytest.param("order-\ud800", "lone surrogate", id="lone surrogate"),
]
APART = ["a", "A", "a ", " a", "ａ", "á", "a\u0301", "a\t", "ß", "ss", "😀", "😁"]


@pytest.mark.parametrize(("key", "reason"), REFUSED)
def test_o38_a_key_given_at_the_start_is_refused_before_anything_is_stored(key: Any, reason: str) -> None:
    with pytest.raises(UsageError, match=reason) as caught:
        plain.using(key=key).start(1)
    assert isinstance(caught.value, ValueError)
    assert_nothing_is_stored()


@pytest.mark.parametrize(("key", "reason"), REFUSED)
def test_o38_a_key_made_of_the_arguments_is_refused_before_anything_is_stored(key: Any, reason: str) -> None:
    for start in (keyed.start, keyed.delay, lambda key: keyed.apply_async((key,))):
        with pytest.raises(UsageError) as caught:
            start(key)
        assert isinstance(caught.value, ValueError)
        assert_nothing_is_stored()
    with pytest.raises(UsageError, match=reason):
        keyed.start_many([("good",), (key,)])
    assert_nothing_is_stored()


@pytest.mark.parametrize(("key", "reason"), REFUSED)
def test_o38_nothing_is_looked_for_under_a_key_that_cannot_be(key: Any, reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        plain.get(key=key)


def test_o38_no_key_makes_no_two_starts_one() -> None:
    handles = [plain.start(1), plain.using(key=None).start(1), keyed.start(None), keyed.start(None)]
    assert [handle.created for handle in handles] == [True] * 4
    assert len({handle.id for handle in handles}) == 4
    assert {handle.key for handle in handles} == {None}
    assert WorkflowKey.objects.count() == 0
    with pytest.raises(UsageError, match="needs a key, got None"):
        plain.get(key=None)  # type: ignore[arg-type]


def test_o38_the_longest_key_is_a_key() -> None:
    longest = "😀" * KEY_LENGTH
    handle = plain.using(key=longest).start(1)
    assert plain.using(key=longest).start(1) == handle
    assert plain.get(key=longest).key == longest


def test_o38_keys_that_collations_take_for_one_are_apart() -> None:
    handles = {key: plain.using(key=key).start(1) for key in APART}
    assert len({handle.id for handle in handles.values()}) == len(APART)
    for key, handle in handles.items():
        assert handle.created
        assert (plain.get(key=key), handle.key) == (handle, key)
        assert [str(row.id) for row in WorkflowInstance.objects.for_key(key)] == [handle.id]
        again = plain.using(key=key).start(1)
        assert (again, again.created) == (handle, False)


def test_o38_only_hashes_that_no_collation_can_join_are_unique() -> None:
    assert [f.name for f in WorkflowKey._meta.fields if f.primary_key] == ["hash"]
    unique = [f for f in WorkflowInstance._meta.fields if f.unique and isinstance(f, models.CharField)]
    assert [f.name for f in unique] == ["open_key"]
    handles = [plain.using(key=key).start(1) for key in ("a", "A", "a ")]
    hashes = [WorkflowInstance.objects.get(pk=handle.id).open_key for handle in handles]
    assert hashes == [key_hash("o38.plain", key) for key in ("a", "A", "a ")]
    assert all(found is not None and set(found) <= set("0123456789abcdef") for found in hashes)
    with connection.cursor() as cursor:
        constraints = connection.introspection.get_constraints(cursor, WorkflowInstance._meta.db_table).values()
    assert any(c["unique"] and c["columns"] == ["open_key"] for c in constraints)


def assert_nothing_is_stored() -> None:
    for model in (WorkflowInstance, WorkflowKey, Mailbox):
        assert model.objects.count() == 0
