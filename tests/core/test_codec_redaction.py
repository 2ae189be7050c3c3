"""What bears the name of a secret is not shown."""

from __future__ import annotations

from collections import OrderedDict, UserDict, deque
from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal
from typing import Any, NamedTuple

import pydantic
import pytest

from durable_celery.codec import redact, redact_call

HIDDEN = "[redacted]"


@dataclass
class Login:
    user: str
    password: str
    nested: Any = field(default=None, repr=False)


class Pair(NamedTuple):
    user: str
    api_key: str


class Account(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="allow")
    user: str
    token: str = "t"


class Opaque:
    def __repr__(self) -> str:
        return "Opaque(\n1)"


class Hostile(UserDict[str, Any]):
    def items(self) -> Any:
        raise RuntimeError


class HostileKey:
    def __str__(self) -> str:
        raise RuntimeError

    def __hash__(self) -> int:
        return 1


@pytest.mark.parametrize(
    ("pattern", "name", "hides"),
    [
        ("password", "password", True),
        ("password", "PASSWORD", True),
        ("Password", "password", True),
        ("password", "user_password", True),
        ("password", "password_hash", True),
        ("password", "old_password_hash", True),
        ("password", "password2", True),
        ("password", "userPassword", True),
        ("password", "X-Password", True),
        ("password", "passwords", False),
        ("password", "mypassword", False),
        ("token", "token_count", True),
        ("token", "tokenizer", False),
        ("api_key", "stripe_api_key", True),
        ("api_key", "apiKey", True),
        ("apiKey", "api_key", True),
        ("api_key", "api", False),
        ("api_key", "key_api", False),
        ("*token*", "tokenizer", True),
        ("*token*", "MyTokens", True),
        ("*_key", "api_key", True),
        ("*_key", "keys", False),
        ("card*", "cardNumber", True),
        ("*", "anything", True),
        ("", "anything", False),
        ("_", "anything", False),
    ],
)
def test_a_name_is_hidden_by_a_pattern(pattern: str, name: str, hides: bool) -> None:
    assert redact({name: "value"}, [pattern]) == {name: HIDDEN if hides else "value"}


def test_every_kind_of_container_is_looked_into() -> None:
    secret = {"password": "hunter2", "n": 1}
    value = {
        "list": [secret],
        "tuple": (secret, (secret,)),
        "dataclass": Login("u", "hunter2", nested=[Login("v", "hunter2")]),
        "named": Pair("u", "hunter2"),
        "model": Account(user="u", token="hunter2", password="hunter2"),  # type: ignore[call-arg]
        "deque": deque([secret]),
        "ordered": OrderedDict(secret),
    }

    shown = redact(value, ["password", "api_key", "token"])

    assert "hunter2" not in repr(shown)
    assert shown == {
        "list": [{"password": HIDDEN, "n": 1}],
        "tuple": ({"password": HIDDEN, "n": 1}, ({"password": HIDDEN, "n": 1},)),
        "dataclass": {
            "user": "u",
            "password": HIDDEN,
            "nested": [{"user": "v", "password": HIDDEN, "nested": None}],
        },
        "named": {"user": "u", "api_key": HIDDEN},
        "model": {"user": "u", "token": HIDDEN, "password": HIDDEN},
        "deque": [{"password": HIDDEN, "n": 1}],
        "ordered": {"password": HIDDEN, "n": 1},
    }
    assert value["list"] == [{"password": "hunter2", "n": 1}]


def test_a_hidden_name_hides_all_that_is_under_it() -> None:
    assert redact({"secrets": {"a": [1]}}, ["secrets"]) == {"secrets": HIDDEN}


def test_plain_values_stay_as_they_are() -> None:
    values = [None, True, 1, 1.5, "password", b"x", Decimal(1), date(2026, 1, 2)]

    assert redact(values, ["password"]) == values


def test_other_objects_become_a_line() -> None:
    assert redact([Opaque()], []) == ["Opaque( 1)"]


def test_a_single_name_may_be_given_as_text() -> None:
    assert redact({"password": 1, "p": 2}, "password") == {"password": HIDDEN, "p": 2}


def test_the_placeholder_can_be_chosen() -> None:
    assert redact({"password": 1}, ["password"], placeholder="***") == {"password": "***"}


def test_what_cannot_be_looked_into_is_hidden_as_a_whole() -> None:
    cycle: list[Any] = []
    cycle.append(cycle)
    deep: Any = 1
    for _ in range(50_000):
        deep = [deep]

    assert redact(Hostile(a=1), ["password"]) == HIDDEN
    assert redact({HostileKey(): 1}, ["password"]) == HIDDEN
    assert HIDDEN in repr(redact(cycle, []))
    assert HIDDEN in repr(redact(deep, []))
    while isinstance(deep, list):
        deep = deep.pop()


def test_positional_arguments_are_known_by_their_parameters() -> None:
    shown = redact_call(
        ("u", "hunter2", {"token": "hunter2"}), {"api_key": "hunter2", "n": 1}, ["user", "password", "more"], SECRETS
    )

    assert shown == (("u", HIDDEN, {"token": HIDDEN}), {"api_key": HIDDEN, "n": 1})


SECRETS = ("password", "token", "api_key")


def test_a_starred_parameter_covers_all_further_positions() -> None:
    assert redact_call((1, 2, 3), {}, ["user", "*tokens"], ["tokens"]) == ((1, HIDDEN, HIDDEN), {})
    assert redact_call((1, 2, 3), {}, ["user", "*rest"], ["tokens"]) == ((1, 2, 3), {})


def test_positions_without_a_parameter_are_looked_into() -> None:
    assert redact_call((1, {"token": 2}), {}, ["user"], SECRETS) == ((1, {"token": HIDDEN}), {})
    assert redact_call((1,), {}, [], SECRETS) == ((1,), {})
