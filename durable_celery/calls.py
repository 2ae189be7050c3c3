"""A call as text: arguments checked against the signature, encoded once, decoded for every attempt."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from durable_celery import codec
from durable_celery.runtime import settings


def encode_call(signature: inspect.Signature, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    """``[[args], {kwargs}]``. A call the function would refuse raises its TypeError here, not in a worker."""
    try:
        signature.bind(*args, **kwargs)
    except TypeError as error:
        raise TypeError(f"{name}{signature}: {error}") from None
    return encode_values(name, args, kwargs)


def encode_values(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    """The same of a function whose signature is not known here."""
    limit = settings().payload_limit
    positional = ",".join(codec.encode(value, root=f"args[{i}] of {name}", limit=limit) for i, value in enumerate(args))
    named = codec.encode(kwargs, root=f"kwargs of {name}", limit=limit) if kwargs else "{}"
    return f"[[{positional}],{named}]"


def decode_call(text: str) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of an encoded call."""
    if not text:
        return (), {}
    args, kwargs = codec.decode(text)
    return tuple(args), kwargs


def signature_of(function: Callable[..., Any]) -> inspect.Signature:
    """The signature calls are checked against."""
    return inspect.signature(function)
