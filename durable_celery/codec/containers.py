"""Collections: each type's tagged form and the way back.

A list and a dict with plain text keys are stored as they are, all others under a tag. A container whose item is refused
adds the item's place to the path.
"""

from __future__ import annotations

import json
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable
from typing import Any

from durable_celery.codec.display import preview
from durable_celery.codec.refusal import Refused
from durable_celery.codec.scalars import pack_str
from durable_celery.codec.stand_ins import has_twin

Pack = Callable[[Any], Any]
Tagged = dict[str, Any]

TAG = "$"

_FACTORIES: dict[str, Any] = {kind.__name__: kind for kind in (list, dict, set, tuple, str, int, float, bool)}


def pack_list(value: Iterable[Any], pack: Pack) -> list[Any]:
    packed: list[Any] = []
    try:
        for item in value:
            packed.append(pack(item))
    except Refused as refused:
        refused.parts.append(f"[{len(packed)}]")
        raise
    return packed


def pack_tuple(value: tuple[Any, ...], pack: Pack) -> Tagged:
    return {TAG: "tuple", "v": pack_list(value, pack)}


def pack_deque(value: deque[Any], pack: Pack) -> Tagged:
    return {TAG: "deque", "v": pack_list(value, pack), "m": value.maxlen}


def unpack_deque(tagged: Tagged) -> deque[Any]:
    return deque(tagged["v"], tagged["m"])


def pack_set(value: Iterable[Any], pack: Pack) -> Tagged:
    """In the order of the texts: a set's own order differs from process to process."""
    packed: list[Any] = []
    try:
        for item in value:
            packed.append(pack(item))
    except Refused as refused:
        refused.parts.append("{item}")
        raise
    return {TAG: type(value).__name__, "v": sorted(packed, key=json.dumps)}


def pack_dict(value: dict[Any, Any], pack: Pack) -> Tagged:
    if TAG in value or not all(type(key) is str and pack_str(key) is key for key in value):
        return {TAG: "dict", "v": pack_pairs(value, pack)}
    packed: dict[str, Any] = {}
    key = ""
    try:
        for key, item in value.items():
            packed[key] = pack(item)
    except Refused as refused:
        refused.parts.append(f"[{preview(key, 60)}]")
        raise
    return packed


def pack_pairs(value: dict[Any, Any], pack: Pack) -> list[Any]:
    """Keys beside values, for keys that are no plain text: members of text enums, lone surrogates, the tag itself."""
    pairs: list[Any] = []
    key: Any = ""
    try:
        for key, item in value.items():
            pairs.append([_pack_key(key, pack), pack(item)])
    except Refused as refused:
        refused.parts.append(f"[{preview(key, 60)}]")
        raise
    if len({json.dumps(packed) for packed, _ in pairs}) < len(pairs):
        raise Refused("two of its keys are the same once they are plain text", "Give each entry a key of its own")
    return pairs


def pack_ordered_dict(value: OrderedDict[Any, Any], pack: Pack) -> Tagged:
    return {TAG: "ordereddict", "v": pack_pairs(value, pack)}


def pack_counter(value: Counter[Any], pack: Pack) -> Tagged:
    return {TAG: "counter", "v": pack_pairs(value, pack)}


def unpack_counter(tagged: Tagged) -> Counter[Any]:
    return Counter(dict(tagged["v"]))


def pack_default_dict(value: defaultdict[Any, Any], pack: Pack) -> Tagged:
    names = [name for name, kind in _FACTORIES.items() if kind is value.default_factory]
    if not names and value.default_factory is not None:
        raise Refused(f"it is a defaultdict whose factory is not one of {', '.join(_FACTORIES)}", "Pass dict(value)")
    return {TAG: "defaultdict", "v": pack_pairs(value, pack), "m": names[0] if names else None}


def unpack_default_dict(tagged: Tagged) -> defaultdict[Any, Any]:
    factory = None if tagged["m"] is None else _FACTORIES[tagged["m"]]
    return defaultdict(factory, tagged["v"])


def _pack_key(key: Any, pack: Pack) -> Any:
    if isinstance(key, str) or has_twin(type(key)):
        return pack(key)
    raise Refused(
        f"the key {preview(key, 60)} is of the type {type(key).__qualname__}, and JSON has only text for keys",
        "Use str(key) for the key, or pass a list of pairs",
    )


BRANCHES: dict[type, Callable[[Any, Pack], Any]] = {
    list: pack_list,
    dict: pack_dict,
    tuple: pack_tuple,
    set: pack_set,
    frozenset: pack_set,
    deque: pack_deque,
    OrderedDict: pack_ordered_dict,
    Counter: pack_counter,
    defaultdict: pack_default_dict,
}

UNPACK_BRANCHES: dict[str, Callable[[Tagged], Any]] = {
    "dict": lambda tagged: dict(tagged["v"]),
    "tuple": lambda tagged: tuple(tagged["v"]),
    "set": lambda tagged: set(tagged["v"]),
    "frozenset": lambda tagged: frozenset(tagged["v"]),
    "deque": unpack_deque,
    "ordereddict": lambda tagged: OrderedDict(tagged["v"]),
    "counter": unpack_counter,
    "defaultdict": unpack_default_dict,
}
