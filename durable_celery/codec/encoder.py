"""Values to JSON text."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from enum import Enum
from typing import Any

from durable_celery.codec import enums, hints, models, records, registered
from durable_celery.codec.containers import BRANCHES, TAG
from durable_celery.codec.refusal import Refused
from durable_celery.codec.scalars import LEAVES
from durable_celery.codec.stand_ins import has_twin, plain_twin
from durable_celery.errors import DurableError, NotSerializable, PayloadTooLarge

MAX_DEPTH = 100

Branch = Callable[[Any, Callable[[Any], Any]], Any]

_ATOMS = frozenset({type(None), bool, int, float, str})
_PLAIN = _ATOMS | {list, dict}
_TEXT = frozenset({str})

_dumps = json.JSONEncoder(ensure_ascii=True, allow_nan=False, check_circular=False, separators=(",", ":")).encode


def encode(value: Any, *, root: str = "value", limit: int | None = None) -> str:
    """JSON text of a value, ASCII only, that ``decode`` turns into an equal value of the same type.

    ``root`` is what the value is called in errors (``result``, ``args[0] of shop.charge``); ``limit`` the most bytes
    the text may have.

    Known: ``None bool int float str list dict tuple set frozenset bytes bytearray Decimal datetime date time
    timedelta UUID``, enums, data classes, named tuples, pydantic models, ``OrderedDict Counter deque``, a
    ``defaultdict`` of a plain builtin, errors of this package, and what ``register_type`` was told. Made plain on
    purpose: a lazy translation becomes its text in the language now active, text marked safe for HTML
    (``SafeString``) plain text, for what was stored is not to be trusted as markup, and a time frozen by freezegun a
    real one. Other subclasses of plain types would come back as something else and are refused; so are keys that are
    not text. Sharing is not kept: a list that occurs twice comes back as two lists. Equal sets give equal texts.

    Raises ``NotSerializable`` (with ``.path``) for anything else, for NaN and infinity, for a value that contains
    itself or is nested deeper than 100 levels; ``PayloadTooLarge`` (with ``.size`` and ``.limit``) for a long text.
    """
    try:
        text = _plain_text(value)
        if text is None:
            text = _dumps(_Packer()(value))
    except Refused as refused:
        what, of, owner = root.partition(" of ")
        path = refused.path(what)
        raise NotSerializable(f"{path}{of}{owner} cannot be stored: {refused.what}. {refused.hint}.", path=path) from (
            refused.__cause__
        )
    except RecursionError:
        raise NotSerializable(
            f"{root} cannot be stored: it is nested too deep for the stack left here. Pass a flatter value.", path=root
        ) from None
    if limit is not None and len(text) > limit:
        raise PayloadTooLarge(
            f"{root} is {len(text):,} bytes as stored, more than the {limit:,} that are allowed. Keep the data in a "
            f"model or a file, and pass its key; or raise PAYLOAD_LIMIT.",
            path=root,
            size=len(text),
            limit=limit,
        )
    return text


# -- plain values: no copy is built, the C encoder sees the value itself ----------------------------------------------


def _plain_text(value: Any) -> str | None:
    """The text of a value that is JSON as it stands; ``None`` if it has to be packed, or refused by name."""
    if type(value) not in _ATOMS and not _is_plain(value, 1):
        return None
    try:
        text = _dumps(value)
    except ValueError:  # NaN, infinity, an int of thousands of digits
        return None
    return None if "\\ud" in text and not _is_utf8(value) else text


def _is_plain(value: Any, depth: int) -> bool:
    items: Iterable[Any]
    if type(value) is list:
        items = value
    elif type(value) is dict and TAG not in value and _TEXT.issuperset(map(type, value)):
        items = value.values()
    else:
        return False
    kinds = set(map(type, items))
    if kinds <= _ATOMS:
        return True
    if depth >= MAX_DEPTH or not kinds <= _PLAIN:
        return False
    for item in items:  # noqa: SIM110 - ``all()`` would take a second frame a level
        if type(item) not in _ATOMS and not _is_plain(item, depth + 1):
            return False
    return True


def _is_utf8(value: Any) -> bool:
    """Whether all text in it is free of lone surrogates; in JSON an emoji looks like two of them."""
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return False
    return True


# -- all other values: a copy in tagged form, with the path of whatever is refused ------------------------------------


class _Packer:
    """Packs one value; remembers which containers it is inside of."""

    __slots__ = ("_inside",)

    def __init__(self) -> None:
        self._inside: set[int] = set()

    def __call__(self, value: Any) -> Any:
        kind = type(value)
        leaf = LEAVES.get(kind)
        if leaf is not None:
            return leaf(value)
        branch = BRANCHES.get(kind) or _branch(kind)
        if branch is None:
            raise hints.refusal(value)
        if id(value) in self._inside:
            raise Refused("it contains itself", "Pass a value without a cycle, for example with keys in place of links")
        if len(self._inside) >= MAX_DEPTH:
            raise Refused(f"it is nested deeper than {MAX_DEPTH} levels", "Pass a flatter value")
        self._inside.add(id(value))
        packed = branch(value, self)
        self._inside.discard(id(value))
        return packed


def _branch(kind: type) -> Branch | None:
    """How to pack values of a class that is in no table; ``None`` if there is no way."""
    if hints.is_command(kind):  # before anything else: a command may be a data class too
        return None
    if registered.is_registered(kind):
        return registered.pack_registered
    if issubclass(kind, Enum):
        return enums.pack_enum
    if records.is_named_tuple(kind):
        return records.pack_named_tuple
    if models.is_model(kind):
        return models.pack_model
    if issubclass(kind, DurableError):
        return records.pack_error
    if records.is_data_class(kind):
        return records.pack_data_class
    return _pack_twin if has_twin(kind) else None


def _pack_twin(value: Any, pack: Callable[[Any], Any]) -> Any:
    return pack(plain_twin(value))
