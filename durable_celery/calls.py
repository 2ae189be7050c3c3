"""A call as text: arguments checked against the signature, encoded once, decoded for every attempt."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from durable_celery import codec, payloads
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


def signature_of(function: Callable[..., Any]) -> inspect.Signature:
    """The signature calls are checked against."""
    return inspect.signature(function)
