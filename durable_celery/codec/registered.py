"""Types that users teach the codec."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, TypeVar

from durable_celery.codec.names import dotted, find_class, register_alias, stored_name
from durable_celery.codec.refusal import Refused
from durable_celery.codec.scalars import LEAVES
from durable_celery.errors import BadValue

T = TypeVar("T")
Pack = Callable[[Any], Any]


class _Registration(NamedTuple):
    encode: Callable[[Any], Any]
    decode: Callable[[Any], Any]


_NATIVE = (*LEAVES, type(None), bool, int, float, str, list, dict, tuple, set, frozenset)

_registrations: dict[type, _Registration] = {}


def register_type(
    type: type[T], encode: Callable[[T], Any], decode: Callable[[Any], T], aliases: Iterable[str] = ()
) -> None:
    """Teach the codec a type: ``encode`` turns a value into something the codec knows, ``decode`` turns that back.

    What ``encode`` returns may be nested and hold other registered types, but not the value itself. Only values of
    exactly this class are meant; register a subclass by itself. ``aliases`` are dotted names the class had before.
    Call it beside the class, so that whoever imports the class has it; from ``AppConfig.ready()`` for classes of other
    people. A second call for a type replaces the first. Data classes, enums, named tuples and pydantic models need no
    registration; registered, they are stored as ``encode`` says. A type that is known from the start is a ``BadValue``.
    """
    if not isinstance(type, _CLASS):
        raise BadValue(f"register_type() takes a class first, not {type!r}")
    if type in _NATIVE:
        raise BadValue(f"register_type() is for new types; {type.__qualname__} is known already")
    for name, function in (("encode", encode), ("decode", decode)):
        if not callable(function):
            raise BadValue(f"register_type({type.__qualname__}): {name} must be callable, not {function!r}")
    if isinstance(aliases, str):
        raise BadValue(f"register_type({type.__qualname__}): aliases is a sequence of names: ({aliases!r},)")
    _registrations[type] = _Registration(encode, decode)
    register_alias(type, *aliases)


def is_registered(kind: type) -> bool:
    """Whether values of exactly this class go through a registration."""
    return kind in _registrations


def pack_registered(value: Any, pack: Pack) -> Any:
    """The tagged form of a value of a registered type."""
    kind = value.__class__
    name = stored_name(kind)
    try:
        inner = _registrations[kind].encode(value)
    except Exception as error:
        raise Refused(
            f"the encode function registered for {dotted(name)} raised {type(error).__name__}: {error}",
            "Correct the function given to register_type()",
        ) from error
    if inner is value:
        raise Refused(
            f"the encode function registered for {dotted(name)} returned the value itself",
            "Return plain data from it",
        )
    return {"$": "registered", "t": name, "v": pack(inner)}


def unpack_registered(tagged: dict[str, Any]) -> Any:
    """The value of a registered type; its registration must have run in this process."""
    kind = find_class(tagged["t"])
    registration = _registrations.get(kind)
    if registration is None:
        raise BadValue(
            f"a stored value is of the class {kind.__module__}.{kind.__qualname__}, which is not registered in this "
            f"process; call register_type() beside the class or in AppConfig.ready()"
        )
    try:
        return registration.decode(tagged["v"])
    except Exception as error:
        raise BadValue(
            f"the decode function registered for {kind.__module__}.{kind.__qualname__} raised "
            f"{type(error).__name__}: {error}"
        ) from error


def unpack_plain(kind: type, value: Any) -> Any:
    """What the registered ``decode`` makes of plain data; its errors are its own."""
    return _registrations[kind].decode(value)


_CLASS = type
