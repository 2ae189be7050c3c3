"""Values with named fields: data classes, named tuples and this package's own errors (pydantic: ``models``).

Stored is the state, not the call: no constructor and no ``__post_init__`` runs when a value is read back, so what comes
back is what was put in, fields with ``init=False`` and attributes set in ``__post_init__`` included. A class may turn
from one kind of record into another. Fields it no longer has are dropped; new ones take their defaults.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Iterable
from typing import Any

from durable_celery.codec import models
from durable_celery.codec.names import dotted, find_class, stored_name
from durable_celery.codec.refusal import Refused
from durable_celery.errors import BadValue, DurableError

Pack = Callable[[Any], Any]

# A value of these holds more than its fields and its ``__dict__``.
_CONTAINERS = (BaseException, str, bytes, int, float, list, dict, tuple, set, frozenset)


def is_named_tuple(kind: type) -> bool:
    """Whether the class was made by ``NamedTuple`` or ``namedtuple``, or derives from one that was."""
    fields = getattr(kind, "_fields", None)
    return issubclass(kind, tuple) and isinstance(fields, tuple) and all(isinstance(name, str) for name in fields)


def is_data_class(kind: type) -> bool:
    return dataclasses.is_dataclass(kind) and not issubclass(kind, _CONTAINERS)


def pack_data_class(value: Any, pack: Pack) -> dict[str, Any]:
    kind = type(value)
    name = stored_name(kind)
    names = _field_names(kind)
    missing = object()
    state = [(field, getattr(value, field, missing)) for field in names]
    for field, content in state:
        if content is missing:
            raise Refused(f"the field {field} of {dotted(name)} has no value", "Set the field, or give it a default")
    packed = {"$": "object", "t": name, "v": models.pack_fields(state, pack)}
    attributes = _attributes(value, names)
    if attributes:
        packed["x"] = models.pack_fields(attributes, pack)
    return packed


def pack_named_tuple(value: Any, pack: Pack) -> dict[str, Any]:
    kind = type(value)
    return {"$": "object", "t": stored_name(kind), "v": models.pack_fields(zip(kind._fields, value, strict=True), pack)}


def pack_error(error: DurableError, pack: Pack) -> dict[str, Any]:
    """An error of this package, as ``gather(..., return_exceptions=True)`` puts it among results; without its cause."""
    return {
        "$": "error",
        "t": stored_name(type(error)),
        "v": str(error),
        "x": models.pack_fields(((k, v) for k, v in vars(error).items() if not k.startswith("__")), pack),
    }


def unpack_object(tagged: dict[str, Any]) -> Any:
    """A record; what it is built as follows from what its class is today."""
    kind = find_class(tagged["t"])
    stored: dict[str, Any] = tagged["v"]
    if models.is_model(kind):
        return models.unpack_model(kind, tagged)
    if is_named_tuple(kind):
        return _named_tuple(kind, stored)
    if is_data_class(kind):
        return _data_class(kind, stored, tagged.get("x") or {})
    raise BadValue(
        f"a stored value is of the class {dotted(tagged['t'])}, which is no data class, named tuple or pydantic model; "
        f"it is refused"
    )


def unpack_error(tagged: dict[str, Any]) -> DurableError:
    kind = find_class(tagged["t"])
    if not issubclass(kind, DurableError):
        raise BadValue(
            f"a stored error is of the class {dotted(tagged['t'])}, which is none of this package's; it is refused"
        )
    error = Exception.__new__(kind, tagged["v"])
    vars(error).update(tagged["x"])
    return error


def _data_class(kind: type, stored: dict[str, Any], attributes: dict[str, Any]) -> Any:
    value: Any = object.__new__(kind)
    for field in dataclasses.fields(kind):
        content = stored[field.name] if field.name in stored else _default(kind, field)
        object.__setattr__(value, field.name, content)
    if hasattr(value, "__dict__"):
        vars(value).update(attributes)
    return value


def _named_tuple(kind: Any, stored: dict[str, Any]) -> Any:
    defaults = getattr(kind, "_field_defaults", {})
    for name in kind._fields:
        if name not in stored and name not in defaults:
            raise models.missing_field(kind, name)
    return tuple.__new__(kind, [stored[name] if name in stored else defaults[name] for name in kind._fields])


def _default(kind: type, field: dataclasses.Field[Any]) -> Any:
    if field.default is not dataclasses.MISSING:
        return field.default
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    raise models.missing_field(kind, field.name)


def _field_names(kind: Any) -> tuple[str, ...]:
    return tuple(field.name for field in dataclasses.fields(kind))


def _attributes(value: Any, fields: Iterable[str]) -> list[tuple[str, Any]]:
    """What the instance holds besides its fields; not what its class computes anew (``cached_property``)."""
    state = getattr(value, "__dict__", None)
    if not state or len(state.keys() - set(fields)) == 0:
        return []
    return [
        (name, content)
        for name, content in state.items()
        if name not in set(fields) and not name.startswith("__") and not _is_computed(type(value), name)
    ]


def _is_computed(kind: type, name: str) -> bool:
    return hasattr(inspect.getattr_static(kind, name, None), "__get__")
