"""The name a class is stored under, and the class a stored name stands for today."""

from __future__ import annotations

import importlib
import re
import sys
from typing import Any

from durable_celery.codec.refusal import Refused
from durable_celery.errors import BadValue

_MODULE = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*")

_aliases: dict[str, type] = {}
_found: dict[str, type] = {}


def register_alias(cls: type, *aliases: str) -> None:
    """Let values stored under old names of a class be read as this class.

    An alias is the dotted name the class once had, such as ``"shop.models.Receipt"``. Needed by classes that moved
    or were renamed; call it beside the class. A second call adds. An alias of another class is a ``BadValue``.
    """
    if not isinstance(cls, type):
        raise BadValue(f"register_alias() takes a class first, not {cls!r}")
    for alias in aliases:
        _add_alias(cls, alias)


def stored_name(cls: type) -> str:
    """``module:qualified.name``; refused if that name would not lead back to the class."""
    name = f"{cls.__module__}:{cls.__qualname__}"
    if "<locals>" in cls.__qualname__:
        raise Refused(
            f"its class {dotted(name)} is defined inside a function and could not be found again",
            "Define the class at the top of a module",
        )
    if "[" in cls.__qualname__ and _lookup(name) is not cls:
        raise Refused(
            f"its class {dotted(name)} has no name of its own in its module",
            f"Give it one there: class Name({cls.__qualname__}): ...",
        )
    if _lookup(name) is not cls:
        raise Refused(
            f"its class {dotted(name)} is not what its module holds under that name, so it could not be found again",
            "Define the class at the top of a module, under its own name",
        )
    return name


def find_class(name: Any) -> type:
    """The class stored as ``name``: by alias, else by importing its module. ``BadValue`` if there is none."""
    if not isinstance(name, str):
        raise BadValue(f"a stored class name is text, not {name!r}")
    cls = _found.get(name)
    if cls is None:
        cls = _found[name] = _aliases.get(dotted(name)) or _imported(name)
    return cls


def dotted(name: str) -> str:
    """A stored name as people write it."""
    return name.replace(":", ".")


def _add_alias(cls: type, alias: str) -> None:
    if not isinstance(alias, str) or "." not in dotted(alias):
        raise BadValue(f"an alias of {cls.__qualname__} is a dotted name such as 'shop.models.Receipt', not {alias!r}")
    taken = _aliases.get(dotted(alias), cls)
    # A module that is loaded twice defines its class anew: the same name, so not a conflict.
    if (taken.__module__, taken.__qualname__) != (cls.__module__, cls.__qualname__):
        raise BadValue(
            f"the alias {alias!r} stands for {taken.__module__}.{taken.__qualname__} already; "
            f"it cannot stand for {cls.__module__}.{cls.__qualname__} too"
        )
    _aliases[dotted(alias)] = cls
    _found.clear()


def _imported(name: str) -> type:
    module_name, _, qualname = name.partition(":")
    if not _MODULE.fullmatch(module_name) or not qualname:
        raise BadValue(f"{name!r} is not a stored class name; expected 'module:Class'")
    try:
        importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name and f"{module_name}.".startswith(f"{error.name}."):
            raise _gone(name, f"there is no module {error.name}") from None
        raise BadValue(f"the class {dotted(name)} cannot be loaded: {error}") from error
    except Exception as error:
        raise BadValue(f"the class {dotted(name)} cannot be loaded: {error!r}") from error
    found = _lookup(name)
    if found is None:
        raise _gone(name, f"the module {module_name} holds no {qualname}")
    if not isinstance(found, type):
        raise BadValue(f"a stored value names {dotted(name)}, which is not a class; it is refused")
    return found


def _lookup(name: str) -> Any:
    """What a loaded module holds under the name, reached through classes alone: never through a module it imported."""
    module_name, _, qualname = name.partition(":")
    holder: Any = sys.modules.get(module_name)
    if "[" in qualname:
        return getattr(holder, qualname, None)
    *outer, last = qualname.split(".")
    for part in outer:
        holder = getattr(holder, part, None)
        if not isinstance(holder, type):
            return None
    return getattr(holder, last, None)


def _gone(name: str, why: str) -> BadValue:
    return BadValue(
        f"a stored value is of the class {dotted(name)}, which no longer exists: {why}. If it moved or was renamed, "
        f"name the old place beside it: register_alias(NewClass, {dotted(name)!r}), or "
        f"register_type(..., aliases=({dotted(name)!r},))"
    )
