"""What is stored as it is given, for people to read and search: it must fit every database. Pure.

Values go through the codec, which escapes what databases refuse; names, ids and attributes do not.
"""

from __future__ import annotations

from math import isfinite
from typing import Any

from durable_celery.errors import BadValue


def is_storable(value: Any) -> bool:
    """Whether every database takes it, to store or to look for: no NUL, lone surrogate, NaN or infinity inside."""
    if isinstance(value, str):
        return "\0" not in value and not any("\ud800" <= character <= "\udfff" for character in value)
    if isinstance(value, float):
        return isfinite(value)
    if isinstance(value, dict):
        return all(is_storable(key) and is_storable(item) for key, item in value.items())
    return not isinstance(value, (list, tuple)) or all(map(is_storable, value))


def check_text(text: str, path: str) -> str:
    """The text; ``BadValue`` if it has a NUL or a lone surrogate."""
    if not is_storable(text):
        raise BadValue(
            f"{path} {text!r} has a NUL or a lone surrogate, which databases cannot store; remove it", path=path
        )
    return text


def check_name(name: Any, default: str, longest: int, what: str) -> str:
    """The ``name`` of a step or workflow, ``default`` if None; ``BadValue`` if a database could not hold it."""
    if name is not None and not isinstance(name, str):
        raise BadValue(f"name={name!r} of a {what} is not allowed, expected a str or None", path="name")
    chosen = default if name is None else name
    if not chosen.strip() or len(chosen) > longest:
        raise BadValue(f"{what} name {chosen!r} has {len(chosen)} characters, 1 to {longest} are allowed", path="name")
    return check_text(chosen, "name")


def check_routing(queue: Any, priority: Any) -> None:
    """``BadValue`` for what is no queue's name and no priority; None is the default of either."""
    if queue is not None and (not isinstance(queue, str) or not queue.strip()):
        raise BadValue(f"queue={queue!r} is not allowed, expected a queue's name or None", path="queue")
    known = isinstance(priority, int) and not isinstance(priority, bool) and 0 <= priority <= 255
    if priority is not None and not known:
        raise BadValue(f"priority={priority!r} is not allowed, expected an int from 0 to 255 or None", path="priority")


def check_json(value: Any, path: str) -> Any:
    """The value; ``BadValue`` with the path of what is no plain JSON: text, finite number, bool, None, list or dict."""
    if isinstance(value, str):
        return check_text(value, path)
    if isinstance(value, dict):
        for key, item in value.items():
            if not isinstance(key, str):
                raise BadValue(f"{path} has the key {key!r}, expected a str; write str(...)", path=path)
            check_json(item, f"{path}[{check_text(key, f'a key of {path}')!r}]")
    elif isinstance(value, list):
        for index, item in enumerate(value):
            check_json(item, f"{path}[{index}]")
    elif isinstance(value, float) and not isfinite(value):
        raise BadValue(f"{path} is {value}, which is no number JSON can hold; leave it out, or use None", path=path)
    elif value is not None and not isinstance(value, (bool, int, float)):
        raise BadValue(
            f"{path} is a {type(value).__name__}, expected plain JSON (text, number, bool, None, list, dict); "
            "write str(...) or isoformat()",
            path=path,
        )
    return value
