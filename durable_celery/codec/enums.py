"""Enum members, by name: a value may be anything and ``auto()`` renumbers, a name is what the code says."""

from __future__ import annotations

import enum
import functools
import operator
from typing import Any

from durable_celery.codec.names import dotted, find_class, stored_name
from durable_celery.codec.refusal import Refused
from durable_celery.errors import BadValue


def pack_enum(member: enum.Enum, pack: Any = None) -> dict[str, Any]:
    """A member by its name; a combination of flags by the names of its parts, by number where names do not suffice."""
    kind = type(member)
    return {"$": "enum", "t": stored_name(kind), "v": _spelling(kind, member)}


def unpack_enum(tagged: dict[str, Any]) -> enum.Enum:
    kind = find_class(tagged["t"])
    if not issubclass(kind, enum.Enum):
        raise BadValue(f"a stored value says that {dotted(tagged['t'])} is an Enum, and it is not; it is refused")
    spelling = tagged["v"]
    if isinstance(spelling, str):
        return _member(kind, spelling)
    if not issubclass(kind, enum.Flag):
        raise BadValue(f"a stored member of {kind.__qualname__} has no name: {spelling!r}")
    if isinstance(spelling, list):
        return _combined(kind, [_member(kind, name) for name in spelling])
    return kind(spelling)


def _spelling(kind: type[enum.Enum], member: enum.Enum) -> Any:
    if kind.__members__.get(member._name_) is member:
        return member._name_
    if not isinstance(member, enum.Flag):
        raise Refused(f"it is no named member of {kind.__qualname__}", "Use a member that the class defines")
    parts = [part for part in kind.__members__.values() if isinstance(part, enum.Flag) and _is_part(part, member)]
    names = list(dict.fromkeys(part._name_ or "" for part in parts))
    return names if _combined(type(member), parts) == member else int(member.value)


def _is_part(part: enum.Flag, whole: enum.Flag) -> bool:
    bits = part.value
    return bits > 0 and bits & (bits - 1) == 0 and bits & whole.value == bits


def _combined(kind: type[enum.Flag], parts: list[Any]) -> enum.Flag:
    return functools.reduce(operator.or_, parts, kind(0))


def _member(kind: type[enum.Enum], name: str) -> enum.Enum:
    member = kind.__members__.get(name)
    if member is None:
        raise BadValue(
            f"a stored value is the member {name!r} of {kind.__module__}.{kind.__qualname__}, which has only "
            f"{', '.join(kind.__members__)}; if it was renamed, keep the old name as a second one: "
            f"{name} = <the new member's value>"
        )
    return member
