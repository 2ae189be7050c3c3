"""Pydantic models (version 2), by their state; pydantic itself is never imported from here.

State, not ``model_validate``: a value read back is equal to the one stored, whatever validators, aliases, strictness or
excluded fields the model has. Stored are the fields, which of them were set, extra and private attributes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from durable_celery.codec.names import stored_name
from durable_celery.codec.refusal import Refused
from durable_celery.errors import BadValue

Pack = Callable[[Any], Any]


def is_model(kind: type) -> bool:
    """Whether the class derives from pydantic's ``BaseModel`` of version 2."""
    return hasattr(kind, "__pydantic_fields_set__") and any(
        parent.__module__ == "pydantic.main" and parent.__qualname__ == "BaseModel" for parent in kind.__mro__
    )


def pack_model(value: Any, pack: Pack) -> dict[str, Any]:
    kind = type(value)
    state = vars(value)
    for name in kind.model_fields:
        if name not in state:  # of model_construct(), or deleted: it would come back with a default, or not at all
            raise Refused(f"the field {name} of {kind.__module__}.{kind.__qualname__} has no value", "Set the field")
    fields = [(name, state[name]) for name in kind.model_fields]
    packed = {
        "$": "object",
        "t": stored_name(kind),
        "v": pack_fields(fields, pack),
        "s": sorted(value.__pydantic_fields_set__),
    }
    if value.__pydantic_extra__:
        packed["x"] = pack_fields(value.__pydantic_extra__.items(), pack)
    private = [(k, v) for k, v in (value.__pydantic_private__ or {}).items() if not _is_undefined(v)]
    if private:
        packed["p"] = pack_fields(private, pack)
    return packed


def unpack_model(kind: Any, tagged: dict[str, Any]) -> Any:
    stored: dict[str, Any] = tagged["v"]
    fields: dict[str, Any] = {}
    for name, field in kind.model_fields.items():
        fields[name] = stored[name] if name in stored else _default(kind, name, field, fields)
    extra = tagged.get("x") or {}
    takes_extra = kind.model_config.get("extra") == "allow"
    value = object.__new__(kind)
    object.__setattr__(value, "__dict__", fields)
    object.__setattr__(value, "__pydantic_fields_set__", set(tagged.get("s", stored)) & (fields.keys() | extra.keys()))
    object.__setattr__(value, "__pydantic_extra__", dict(extra) if takes_extra else None)
    object.__setattr__(value, "__pydantic_private__", _private(kind, tagged.get("p") or {}))
    return value


def pack_fields(fields: Iterable[tuple[str, Any]], pack: Pack) -> Any:
    """Fields by name; each name is the part of the path that an error shows."""
    packed: dict[str, Any] = {}
    for name, content in fields:
        try:
            packed[name] = pack(content)
        except Refused as refused:
            refused.parts.append(f".{name}")
            raise
    return packed if "$" not in packed else {"$": "dict", "v": [[name, content] for name, content in packed.items()]}


def missing_field(kind: type, name: str) -> BadValue:
    return BadValue(
        f"a stored {kind.__module__}.{kind.__qualname__} has no field {name}, which today's class requires; "
        f"give {kind.__qualname__}.{name} a default"
    )


def _default(kind: type, name: str, field: Any, before: dict[str, Any]) -> Any:
    if field.is_required():
        raise missing_field(kind, name)
    if getattr(field, "default_factory_takes_validated_data", False):
        return field.get_default(call_default_factory=True, validated_data=before)
    return field.get_default(call_default_factory=True)


def _private(kind: Any, stored: dict[str, Any]) -> dict[str, Any] | None:
    if not kind.__private_attributes__:
        return None
    private = {}
    for name, attribute in kind.__private_attributes__.items():
        content = stored[name] if name in stored else attribute.get_default()
        if not _is_undefined(content):
            private[name] = content
    return private


def _is_undefined(content: Any) -> bool:
    return type(content).__name__ == "PydanticUndefinedType"
