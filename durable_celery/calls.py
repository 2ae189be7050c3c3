"""A call as text: arguments checked against the signature, encoded once, decoded for every attempt."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from typing import Any

from durable_celery import codec, payloads
from durable_celery.errors import NotSerializable
from durable_celery.runtime import settings

SHORT = 256  # characters
SHAPES = 50  # of good calls that a function keeps in mind


def encode_call(signature: inspect.Signature, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    """``[[args], {kwargs}]``. A call the function would refuse raises its TypeError here, not in a worker."""
    bind(signature, name, args, kwargs)
    return encode_values(name, args, kwargs)


def bind(signature: inspect.Signature, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Raises the TypeError of a call the function would refuse."""
    try:
        signature.bind(*args, **kwargs)
    except TypeError as error:
        raise TypeError(f"{name}{signature}: {error}") from None


def encode_values(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    """The same of a function whose signature is not known here."""
    limits = settings()
    positional = ",".join(payloads.encode(value, limits, root=f"args[{i}] of {name}") for i, value in enumerate(args))
    named = payloads.encode(kwargs, limits, root=f"kwargs of {name}") if kwargs else "{}"
    return f"[[{positional}],{named}]"


class Shape:
    """Refuses the calls a function would refuse; their number of arguments and the names decide that, once for each."""

    def __init__(self, signature: inspect.Signature, name: str) -> None:
        self._signature = signature
        self._name = name
        self._good: set[tuple[object, ...]] = set()

    def check(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Raises the TypeError that ``bind`` does."""
        shape = (len(args), *kwargs)
        if shape not in self._good:
            bind(self._signature, self._name, args, kwargs)
            if len(self._good) < SHAPES:
                self._good.add(shape)


def never_change(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether the values may as well be encoded later: nobody can change them, and none will be refused."""
    if kwargs:
        return False
    for value in args:  # a loop, and no generator: asked for each step of each replay
        kind = type(value)
        if not (
            value is None
            or kind is bool
            or (kind is int and value.bit_length() < 64)
            or (kind is str and len(value) <= SHORT)
        ):
            return False
    return True


def decode_call(text: str) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of an encoded call."""
    if not text:
        return (), {}
    args, kwargs = codec.decode(text)
    return tuple(args), kwargs


def is_same(signature: inspect.Signature, one: str, other: str) -> bool:
    """Whether two encoded calls mean the same: by place or by name, a default given or left out, dicts in any order."""
    if one == other:
        return True
    try:
        return _bound(signature, one) == _bound(signature, other)
    except (TypeError, ValueError):
        return False  # the function has changed since, and takes one of them no more


def _bound(signature: inspect.Signature, text: str) -> str:
    """The values as they are stored, so that 1 and True are two, and a type that is gone here is no hindrance."""
    args, kwargs = json.loads(text) if text else ((), {})
    values = signature.bind(*args, **kwargs).arguments
    for name, parameter in signature.parameters.items():
        if name not in values and parameter.default is not parameter.empty:
            try:
                values[name] = json.loads(codec.encode(parameter.default))
            except NotSerializable:
                continue  # nobody can have given such a value, so there is nothing to compare it with
    return json.dumps(values, sort_keys=True)


def signature_of(function: Callable[..., Any]) -> inspect.Signature:
    """The signature calls are checked against."""
    return inspect.signature(function)
