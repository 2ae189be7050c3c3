"""JSON text to values."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from durable_celery.codec import enums, records, registered
from durable_celery.codec.containers import TAG, UNPACK_BRANCHES
from durable_celery.codec.display import preview
from durable_celery.codec.encoder import encode
from durable_celery.codec.scalars import UNPACK_LEAVES
from durable_celery.errors import BadValue


def decode(text: str) -> Any:
    """The value that ``encode`` made the text of.

    Classes are looked up by alias first, else by importing their module; only data classes, named tuples, enums,
    pydantic models, registered types and errors of this package are ever built, whatever the text says. ``BadValue``
    says what is missing if a class is gone, lacks a default for a new field, or the text is not one of ours.
    """
    if not isinstance(text, str):
        raise BadValue(f"decode() takes the text that encode() made, not {type(text).__qualname__}")
    decoder = _TAGGED if _TAG_TEXT in text else _PLAIN
    try:
        return _read(decoder, text)
    except RecursionError:
        raise BadValue("a stored value is nested too deep for the stack left here") from None
    except json.JSONDecodeError as error:
        raise BadValue(f"a stored value is not JSON: {error}; it begins {preview(text, 60)}") from None


def _read(decoder: json.JSONDecoder, text: str) -> Any:
    """Without the looks for white space before and after, which a replay of thousands of results would feel."""
    try:
        value, end = decoder.raw_decode(text)
    except json.JSONDecodeError:
        end = -1
    return value if end == len(text) else decoder.decode(text)


def copy(value: Any, *, root: str = "value") -> Any:
    """What ``decode`` makes of ``encode``: the value as a body sees it on replay, sharing nothing with the original."""
    return decode(encode(value, root=root))


def _unpack(found: dict[str, Any]) -> Any:
    """Called for every JSON object, innermost first, so what is inside has its final form already."""
    if TAG not in found:
        return found
    unpack = _UNPACK.get(found[TAG]) if isinstance(found[TAG], str) else None
    if unpack is None:
        raise BadValue(
            f"a stored value has the unknown tag {preview(found[TAG], 60)}; a newer version may have written it"
        )
    try:
        return unpack(found)
    except BadValue:
        raise
    except Exception as error:
        raise BadValue(f"a stored {found[TAG]} is damaged ({type(error).__name__}: {error})") from error


def _refuse_constant(name: str) -> Any:
    raise BadValue(f"a stored value holds {name}, which is not JSON; encode() does not write such text")


_UNPACK: dict[str, Callable[[dict[str, Any]], Any]] = {
    **UNPACK_LEAVES,
    **UNPACK_BRANCHES,
    "enum": enums.unpack_enum,
    "object": records.unpack_object,
    "error": records.unpack_error,
    "registered": registered.unpack_registered,
}

_TAG_TEXT = json.dumps(TAG)
_PLAIN = json.JSONDecoder(parse_constant=_refuse_constant)
_TAGGED = json.JSONDecoder(object_hook=_unpack, parse_constant=_refuse_constant)
