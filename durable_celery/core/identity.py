"""Names things are found by: instance ids, keys, positions, idempotency keys, fingerprints. Pure.

A position is a path, written ``"3"`` or ``"2.0.1"``: the ordinal of the yield (from 1), then member indexes (from 0).
A compensation of position P stands at ``P~``. Positions never depend on attempts or on who finishes first. What
stood at P and was set aside by ``skip`` is kept at ``P!1``, ``P!2``, what stood below it at ``P!1.0``.
"""

from __future__ import annotations

import hashlib
import inspect
import re
import types
import uuid
from collections.abc import Callable
from typing import Any

from durable_celery.errors import BadValue

NAMESPACE = uuid.UUID("6f5fb0b5-9c0e-5a9a-8f0c-6a2a3b7d1c55")
KEY_LENGTH = 191  # utf8mb4 characters MySQL can index in every row format
COMPENSATION = "~"
ASIDE = "!"
POSITION = re.compile(r"[1-9]\d{0,8}(\.\d{1,9})*")


def new_id(milliseconds: int, entropy: bytes) -> uuid.UUID:
    """A time-ordered uuid (RFC 9562, version 7) from Unix milliseconds and 10 random bytes."""
    value = (milliseconds & ((1 << 48) - 1)) << 80 | int.from_bytes(entropy[:10], "big")
    value = value & ~(0xF000 << 64) | (0x7000 << 64)
    value = value & ~(0xC000 << 48) | (0x8000 << 48)
    return uuid.UUID(int=value)


def instance_id_of(task_id: str) -> uuid.UUID:
    """The instance a Celery task id stands for: itself if it is a uuid, else its uuid5; a redelivery finds it again."""
    try:
        return uuid.UUID(task_id)
    except ValueError:
        return uuid.uuid5(NAMESPACE, task_id)


def check_key(key: Any) -> str | None:
    """The key, if it is one. None means no key; blank, unstorable, non-str or over 191 characters: ``BadValue``."""
    if key is None:
        return None
    if not isinstance(key, str):
        raise BadValue(f"key must be a str or None, got {type(key).__name__} {key!r}; write key=str(...)", path="key")
    if not key.strip():
        raise BadValue(
            f"key {key!r} is blank; give a key that names the business object, or None for no key", path="key"
        )
    if "\0" in key or any("\ud800" <= character <= "\udfff" for character in key):
        raise BadValue(
            f"key {key!r} has a NUL or a lone surrogate, which databases cannot store; remove it", path="key"
        )
    if len(key) > KEY_LENGTH:
        raise BadValue(
            f"key has {len(key)} characters, at most {KEY_LENGTH} are allowed; shorten or hash it", path="key"
        )
    return key


def key_hash(workflow: str, key: str) -> str:
    """64 hex digits that tell apart what collations do not: case, accents, trailing spaces."""
    return hashlib.sha256(f"{workflow}\0{key}".encode("utf-8", "surrogatepass")).hexdigest()


def idempotency_key(instance_id: Any, position: str) -> str:
    """What a step gives to the outside; the same on every attempt and redelivery."""
    return f"{instance_id}:{position}"


def child_id(run_id: Any, position: str) -> uuid.UUID:
    """The id of the child that a run asks for at a position; however often that is tried, it is the same one."""
    return uuid.uuid5(NAMESPACE, f"child:{run_id}:{position}")


# -- positions -----------------------------------------------------------------------------------------------------


def member(position: str, index: int) -> str:
    """The position of a member of the command at ``position``."""
    return f"{position}.{index}"


def compensation_of(position: str) -> str:
    """Where the compensation of ``position`` stands."""
    return position + COMPENSATION


def is_position(text: str) -> bool:
    """Whether it is the position of a command: ``"3"``, ``"2.0.1"``."""
    return POSITION.fullmatch(text) is not None


def is_beside(position: str) -> bool:
    """Whether a row is no command of the body: a compensation, or something set aside."""
    return COMPENSATION in position or ASIDE in position


def ordinal_of(position: str) -> int:
    """The ordinal of the yield a position belongs to."""
    return int(position.partition(".")[0].partition(ASIDE)[0].rstrip(COMPENSATION))


def aside(position: str, number: int) -> str:
    """Where the row at ``position`` goes when it is set aside for the ``number``-th time."""
    return f"{position}{ASIDE}{number}"


def sort_key(position: str) -> tuple[int, tuple[int, ...]]:
    """Sorts positions as the body yielded them, what was set aside right behind what took its place.

    Compensations come after everything, newest position first.
    """
    if position.endswith(COMPENSATION):
        return 1, tuple(-part for part in _parts(position[:-1]))
    return 0, tuple(_parts(position))


def _parts(position: str) -> list[int]:
    # Of "2!1.0": 2, -1 (before any member), 1, 0.
    return [int(part) for part in position.replace(ASIDE, ".-1.").split(".")]


# -- fingerprints --------------------------------------------------------------------------------------------------

FUNCTIONS = 200  # that a fingerprint follows at most


def fingerprint(body: Callable[..., Any]) -> str:
    """16 hex digits of a body's code, with the plain functions of its own package that it names, and theirs.

    A fix in a helper generator counts as new code of the body; a new body of a step, a comment or a moved line do not.
    The same in every process that runs the code on the same Python.
    """
    digest = hashlib.sha256()
    package = _package(body.__module__)
    todo: list[Callable[..., Any]] = [body]
    seen: set[int] = set()
    while todo and len(seen) < FUNCTIONS:
        function = inspect.unwrap(todo.pop(0))
        if isinstance(function, types.FunctionType) and id(function) not in seen:
            seen.add(id(function))
            _feed(digest, function)
            todo += [other for other in _named(function, package) if _package(other.__module__) == package]
    return digest.hexdigest()[:16]


def _feed(digest: Any, function: types.FunctionType) -> None:
    for code in _codes(function.__code__):
        constants = [_stable(c) for c in code.co_consts if not isinstance(c, types.CodeType)]
        digest.update(code.co_code)
        digest.update(repr((constants, code.co_names, code.co_varnames, code.co_freevars)).encode("utf-8", "replace"))
    digest.update(_stable((function.__defaults__, function.__kwdefaults__)).encode("utf-8", "replace"))


def _named(function: types.FunctionType, package: str) -> list[types.FunctionType]:
    """The plain functions a function names: around it, in its module, or in a module of its package."""
    found: list[Any] = [cell.cell_contents for cell in function.__closure__ or () if _filled(cell)]
    for code in _codes(function.__code__):
        known = [function.__globals__.get(name) for name in code.co_names]
        modules = [m for m in known if isinstance(m, types.ModuleType) and _package(m.__name__) == package]
        found += known + [vars(module).get(name) for module in modules for name in code.co_names]
    return [other for other in found if isinstance(other, types.FunctionType)]


def _filled(cell: types.CellType) -> bool:
    try:
        return cell.cell_contents is not None
    except ValueError:
        return False  # a name that has no value yet


def _package(module: str | None) -> str:
    return (module or "").partition(".")[0]


def _stable(constant: Any) -> str:
    """The repr of a constant, the same in each process: sets follow the hash seed, addresses the memory."""
    if isinstance(constant, (frozenset, set)):
        return repr(sorted(map(_stable, constant)))
    if isinstance(constant, tuple):
        return repr([_stable(each) for each in constant])
    if isinstance(constant, dict):
        return repr([(_stable(key), _stable(value)) for key, value in constant.items()])
    return re.sub(r" at 0x[0-9a-fA-F]+", "", repr(constant))


def _codes(code: types.CodeType) -> list[types.CodeType]:
    found = [code]
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            found += _codes(constant)
    return found
