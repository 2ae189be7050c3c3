"""Plain JSON, as people write it into a form or a command line, to a value of a declared type.

Unlike ``decode`` it runs constructors and validators: what people type is checked, what was stored is not.
"""

from __future__ import annotations

import dataclasses
import enum
import math
import re
import types
import typing
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

from durable_celery.codec.display import preview
from durable_celery.codec.models import is_model
from durable_celery.codec.records import is_data_class, is_named_tuple
from durable_celery.codec.registered import is_registered, unpack_plain
from durable_celery.errors import BadValue

LISTS = (list, tuple, set, frozenset)


def from_plain(value: Any, kind: Any, *, path: str = "value") -> Any:
    """``value``, as ``json.loads`` gave it, as a ``kind``; ``BadValue`` names the path to what does not fit.

    Data classes, named tuples and pydantic models are JSON objects by field; enums their value or name; decimals text
    or numbers; dates, times and instants ISO 8601; durations seconds; bytes UTF-8 text; sets and tuples lists. Of a
    union the first member that fits. Where ``kind`` says nothing (None, ``Any``, a type variable), the value as it is.
    """
    if kind is None or kind is Any or isinstance(kind, (str, typing.TypeVar, typing.ForwardRef)):
        return value
    origin = typing.get_origin(kind) or kind
    if origin is typing.Annotated:
        return from_plain(value, typing.get_args(kind)[0], path=path)
    if origin is typing.Literal:
        return _literal(value, typing.get_args(kind), path)
    if origin in (typing.Union, types.UnionType):
        return _union(value, typing.get_args(kind), path)
    return _instance(value, kind, origin, path) if isinstance(origin, type) else value


def signature_text(kind: Any) -> str:
    """How a type is told to people: ``Approval(by: str, amount: Decimal = ...)``; "" where it says nothing."""
    if kind is None or kind is Any:
        return ""
    if not isinstance(kind, type) or not (is_data_class(kind) or is_named_tuple(kind) or is_model(kind)):
        return _name(kind)
    hints = hints_of(kind)
    optional = _optional_fields(kind)
    fields = (f"{name}: {_name(hints.get(name, Any))}{' = ...' if name in optional else ''}" for name in _fields(kind))
    return f"{kind.__name__}({', '.join(fields)})"


def hints_of(thing: Any) -> dict[str, Any]:
    """The annotations of a class or function, resolved; those that cannot be are left out."""
    try:
        return typing.get_type_hints(thing, include_extras=True)
    except Exception:  # noqa: BLE001 - a name that exists for the type checker alone
        own = getattr(thing, "__annotations__", {})
        return {name: hint for name, hint in own.items() if not isinstance(hint, str)}


# -- by kind -----------------------------------------------------------------------------------------------------------


def _instance(value: Any, kind: Any, origin: type, path: str) -> Any:
    if origin is type(None):
        return _expect(value is None, value, "null", path)
    if origin in _SCALARS:
        return _SCALARS[origin](value, path)
    if is_registered(origin):
        with _told(path, origin):
            return unpack_plain(origin, value)
    if is_model(origin):
        return _model(value, origin, path)
    if is_data_class(origin) or is_named_tuple(origin):
        return _record(value, origin, path)
    if issubclass(origin, enum.Enum):
        return _enum(value, origin, path)
    args = typing.get_args(kind)
    if origin is dict or _is_abstract_mapping(origin):
        return _mapping(value, args, path)
    if origin in LISTS or _is_abstract_list(origin):
        return _many(value, origin, args, path)
    return value


def _record(value: Any, kind: Any, path: str) -> Any:
    _expect(isinstance(value, dict), value, f"an object: {signature_text(kind)}", path)
    hints = hints_of(kind)
    names = _fields(kind)
    unknown = sorted(map(str, value.keys() - set(names)))
    missing = sorted(set(names) - _optional_fields(kind) - value.keys())
    if unknown or missing:
        wrong = [f"has no field {name!r}" for name in unknown] + [f"needs the field {name!r}" for name in missing]
        raise BadValue(f"{path}: {kind.__name__} {', '.join(wrong)}; expected {signature_text(kind)}", path=path)
    given = {name: from_plain(part, hints.get(name), path=f"{path}.{name}") for name, part in value.items()}
    with _told(path, kind):
        return kind(**given)


def _model(value: Any, kind: Any, path: str) -> Any:
    try:
        return kind.model_validate(value)
    except Exception as error:
        found = error.errors() if callable(getattr(error, "errors", None)) else []  # type: ignore[attr-defined]
        for first in found[:1]:
            where = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in first["loc"])
            raise BadValue(
                f"{path}{where}: {first['msg']}; expected {signature_text(kind)}", path=path + where
            ) from None
        raise BadValue(f"{path}: {type(error).__name__}: {error}", path=path) from None


def _enum(value: Any, kind: Any, path: str) -> Any:
    if isinstance(value, str) and value in kind.__members__:
        return kind[value]
    for member in kind:
        if member.value == value and type(member.value) is type(value):
            return member
    allowed = ", ".join(preview(member.value, 60) for member in list(kind)[:20])
    raise BadValue(f"{path}: {preview(value, 60)} is no {kind.__name__}; expected one of {allowed}", path=path)


def _literal(value: Any, allowed: tuple[Any, ...], path: str) -> Any:
    for one in allowed:
        if one == value and type(one) is type(value):
            return one
    raise BadValue(f"{path}: {preview(value, 60)}; expected one of {', '.join(map(repr, allowed))}", path=path)


def _union(value: Any, kinds: tuple[Any, ...], path: str) -> Any:
    if value is None and type(None) in kinds:
        return None
    others = [kind for kind in kinds if kind is not type(None)]
    refusals = []
    for kind in others:
        try:
            return from_plain(value, kind, path=path)
        except BadValue as refused:
            refusals.append(refused)
    if len(refusals) == 1:
        raise refusals[0]
    names = " or ".join(_name(kind) for kind in kinds)
    raise BadValue(f"{path}: {preview(value, 60)}; expected {names}", path=path) from None


def _many(value: Any, origin: Any, args: tuple[Any, ...], path: str) -> Any:
    _expect(isinstance(value, list), value, "a list", path)
    make: Any = origin if origin in LISTS else list
    if origin is tuple and args and not (len(args) == 2 and args[1] is Ellipsis):
        _expect(len(value) == len(args), value, f"a list of {len(args)}", path)
        kinds = list(args)
    else:
        kinds = [args[0] if args else None] * len(value)
    parts = [
        from_plain(part, kind, path=f"{path}[{i}]") for i, (part, kind) in enumerate(zip(value, kinds, strict=True))
    ]
    with _told(path, make):
        return make(parts)


def _mapping(value: Any, args: tuple[Any, ...], path: str) -> Any:
    _expect(isinstance(value, dict), value, "an object", path)
    kind = args[1] if len(args) == 2 else None
    return {name: from_plain(part, kind, path=f"{path}.{name}") for name, part in value.items()}


def _is_abstract_list(origin: type) -> bool:
    return origin.__module__ == "collections.abc" and origin.__name__ in ("Sequence", "Iterable", "Collection")


def _is_abstract_mapping(origin: type) -> bool:
    return origin.__module__ == "collections.abc" and origin.__name__ in ("Mapping", "MutableMapping")


# -- scalars -----------------------------------------------------------------------------------------------------------


def _bool(value: Any, path: str) -> Any:
    return _expect(isinstance(value, bool), value, "true or false", path)


def _int(value: Any, path: str) -> Any:
    return _expect(isinstance(value, int) and not isinstance(value, bool), value, "a whole number", path)


def _float(value: Any, path: str) -> float:
    _expect(_is_number(value), value, "a number", path)
    return float(_parsed(lambda: float(value), value, "a number a float can hold", path))


def _str(value: Any, path: str) -> Any:
    return _expect(isinstance(value, str), value, "text", path)


def _bytes(value: Any, path: str) -> bytes:
    return str(_str(value, path)).encode("utf-8", "surrogatepass")


def _decimal(value: Any, path: str) -> Any:
    _expect(isinstance(value, str) or _is_number(value), value, 'a decimal such as "12.50"', path)
    return _parsed(lambda: Decimal(str(value)), value, 'a decimal such as "12.50"', path)


def _uuid(value: Any, path: str) -> Any:
    return _parsed(lambda: UUID(value), value, "a uuid", path)


def _instant(value: Any, path: str) -> Any:
    expected = 'an instant with its zone such as "2026-11-29T17:00:00+00:00"'
    found: datetime = _parsed(lambda: datetime.fromisoformat(_with_offset(value)), value, expected, path)
    return found


def _date(value: Any, path: str) -> Any:
    return _parsed(lambda: date.fromisoformat(value), value, 'a date such as "2026-11-29"', path)


def _time(value: Any, path: str) -> Any:
    return _parsed(lambda: time.fromisoformat(_with_offset(value)), value, 'a time such as "17:00"', path)


def _duration(value: Any, path: str) -> Any:
    _expect(_is_number(value), value, "a duration in seconds", path)
    return _parsed(lambda: timedelta(seconds=value), value, "a duration in seconds", path)


def _with_offset(text: Any) -> Any:
    """``Z`` in Python 3.10's terms."""
    return f"{text[:-1]}+00:00" if isinstance(text, str) and text[-1:] in ("Z", "z") else text


def _is_number(value: Any) -> bool:
    if isinstance(value, float):
        return math.isfinite(value)
    return isinstance(value, int) and not isinstance(value, bool)


_SCALARS: dict[type, Callable[[Any, str], Any]] = {
    bool: _bool, int: _int, float: _float, str: _str, bytes: _bytes, Decimal: _decimal, UUID: _uuid,
    datetime: _instant, date: _date, time: _time, timedelta: _duration,
}  # fmt: skip


# -- refusing ----------------------------------------------------------------------------------------------------------


def _parsed(parse: Callable[[], Any], value: Any, expected: str, path: str) -> Any:
    try:
        return parse()
    except Exception:  # noqa: BLE001 - each parser has errors of its own
        raise _refusal(value, expected, path) from None


def _expect(fits: bool, value: Any, expected: str, path: str) -> Any:
    if not fits:
        raise _refusal(value, expected, path)
    return value


def _refusal(value: Any, expected: str, path: str) -> BadValue:
    return BadValue(f"{path}: {preview(value, 60)}; expected {expected}", path=path)


@contextmanager
def _told(path: str, kind: Any) -> Iterator[None]:
    """Errors of other people's constructors, with the path."""
    try:
        yield
    except Exception as error:
        raise BadValue(f"{path}: {kind.__name__} refuses it ({type(error).__name__}: {error})", path=path) from None


# -- types in words ----------------------------------------------------------------------------------------------------


def _fields(kind: Any) -> tuple[str, ...]:
    if is_model(kind):
        return tuple(kind.model_fields)
    if is_named_tuple(kind):
        return tuple(kind._fields)
    return tuple(field.name for field in dataclasses.fields(kind) if field.init)


def _optional_fields(kind: Any) -> set[str]:
    if is_model(kind):
        return {name for name, field in kind.model_fields.items() if not field.is_required()}
    if is_named_tuple(kind):
        return set(kind._field_defaults)
    return {
        field.name
        for field in dataclasses.fields(kind)
        if field.default is not dataclasses.MISSING or field.default_factory is not dataclasses.MISSING
    }


def _name(kind: Any) -> str:
    if isinstance(kind, type) and not typing.get_args(kind):
        return kind.__name__
    return re.sub(r"\b(?:\w+\.)+(?=\w)", "", str(kind))
