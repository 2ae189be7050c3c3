"""JSON given on a command line."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from django_app.verbs.console import WrongUsage
from durable_celery.codec import from_plain
from durable_celery.codec.plain import hints_of
from durable_celery.errors import BadValue


def read_json(text: str, option: str) -> Any:
    """The value; text that is no JSON is wrong usage."""
    try:
        return json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise WrongUsage(f"{option} is not JSON ({error}): {text:.80}") from None


def read_call(body: Callable[..., Any], names: list[str], args: list[Any], kwargs: dict[str, Any]) -> Any:
    """Arguments as the types that the function declares; ``names`` are those of its positional parameters."""
    hints = hints_of(body)
    given = [
        typed(value, hints.get(names[number]) if number < len(names) else None, f"args[{number}]")
        for number, value in enumerate(args)
    ]
    return given, {name: typed(value, hints.get(name), f"kwargs.{name}") for name, value in kwargs.items()}


def typed(value: Any, kind: Any, path: str) -> Any:
    """A plain value as a ``kind``."""
    try:
        return from_plain(value, kind, path=path)
    except BadValue as error:
        raise WrongUsage(str(error)) from None


def _refuse(name: str) -> Any:
    raise ValueError(f"{name} is no number there")
