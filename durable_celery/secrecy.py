"""Secret arguments, taken out of free text: messages, tracebacks, status texts, lines of a log.

Rules of this file:
- A secret is what stands under a name that ``redact`` or ``REDACT`` hides, in the arguments at hand; it is found in a
  text as it is, or as ``repr`` writes it.
- It hides from readers of pages and logs. The program itself gets what it stored.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any
from uuid import UUID

from durable_celery.codec import decode
from durable_celery.codec.redaction import PLACEHOLDER, hidden_names
from durable_celery.core.failure import printable
from durable_celery.disclosure import Disclosure
from durable_celery.errors import DurableError, type_name

SHORTEST_SECRET = 4  # a shorter one is a common word or number; taking it out of a text would only garble it
DEEPEST = 20  # levels of a value, links of a chain of errors
UNSEARCHED = "[hidden: the arguments are too large to search them for secrets here; its own page tells it]"


@dataclass(frozen=True, slots=True, kw_only=True)
class Scrubber:
    """Takes known secrets out of free text.

    ``named`` are those that stand under a hidden name; the others are any positions of a definition that this process
    does not know. ``blind``: some arguments were not read, so no text can be trusted.
    """

    secrets: Sequence[str] = ()
    named: Sequence[str] = ()
    blind: bool = False

    def __call__(self, text: str) -> str:
        """A text without them."""
        if self.blind and text:
            return UNSEARCHED
        return printable(_without(text, self.secrets))

    def __or__(self, other: Scrubber) -> Scrubber:
        """The secrets of this one, and those of the other that are named."""
        secrets = sorted({*self.secrets, *other.named}, key=len, reverse=True)
        return Scrubber(secrets=secrets, named=sorted({*self.named, *other.named}, key=len, reverse=True))

    def texts(self, value: Any) -> Any:
        """A copy of plain data whose texts are without them."""
        return _cleaned(value, self.secrets, 0) if self.secrets else value

    def data(self, value: Any) -> Any:
        """A copy of plain data without those of ``named``; what cannot be looked into and shows one is hidden whole."""
        return _cleaned(value, self.named, 0) if self.named else value

    def shows(self, text: str) -> bool:
        """Whether a secret stands in it."""
        return any(secret in text for secret in self.secrets)


def scrubber(calls: Iterable[tuple[str, Disclosure]], *, blind: bool = False) -> Scrubber:
    """What takes the secret arguments of these encoded calls out of texts."""
    return scrubber_of_calls(
        [(call, of) for encoded, of in calls if (call := _decoded(encoded)) is not None], blind=blind
    )


def scrubber_of_calls(calls: Iterable[tuple[Any, Disclosure]], *, blind: bool = False) -> Scrubber:
    """The same of calls as they are."""
    named: set[str] = set()
    unknown: set[str] = set()
    for call, of in calls:
        hidden = hidden_names(of.hidden)
        args, kwargs = as_call(call)
        for name, value in labelled(args, of.parameters):
            named.update(_leaves(value, hidden(name), hidden, 0))
            unknown.update(_leaves(value, True, hidden, 0) if of.parameters is None else ())
        for name, value in kwargs.items():
            named.update(_leaves(value, hidden(str(name)), hidden, 0))
    return Scrubber(secrets=_spelled(named | unknown), named=_spelled(named), blind=blind)


def without_secrets(error: BaseException, scrub: Scrubber) -> BaseException:
    """The error itself if neither it nor what led to it shows a secret; else one that says the same without.

    That is of the same class if one can be made, with the same traceback and causes of its own.
    """
    if not scrub.secrets or not scrub.shows(_told(error)):
        return error
    return _alike(error, scrub, 0)


def as_call(value: Any) -> tuple[Sequence[Any], Mapping[str, Any]]:
    """Positional and keyword arguments of a decoded call."""
    if isinstance(value, Mapping) and set(value) <= {"args", "kwargs"}:
        return value.get("args", ()), value.get("kwargs", {})
    if isinstance(value, (list, tuple)) and len(value) == 2 and isinstance(value[1], Mapping):
        return value[0], value[1]
    return (value,), {}


def labelled(args: Sequence[Any], parameters: Sequence[str] | None) -> list[tuple[str, Any]]:
    """Positional arguments with their names; with their numbers where there is none."""
    return [(_label(parameters or (), index), value) for index, value in enumerate(args)]


def _label(parameters: Sequence[str], index: int) -> str:
    if index < len(parameters) and not parameters[index].startswith("*"):
        return parameters[index]
    rest = parameters[-1] if parameters else ""
    return f"{rest[1:]}[{index - len(parameters) + 1}]" if rest.startswith("*") else f"[{index}]"


# -- secrets -----------------------------------------------------------------------------------------------------------


def _decoded(encoded: str) -> Any:
    try:
        return decode(encoded)
    except Exception:  # noqa: BLE001 - its class may be gone or the text damaged
        return None


def _leaves(value: Any, secret: bool, hidden: Any, depth: int) -> Iterator[str]:
    """The texts inside a value that stand under a hidden name."""
    if depth > DEEPEST:
        return
    if secret and isinstance(value, (str, int, float, Decimal, UUID)) and not isinstance(value, bool):
        yield str(value)
    elif secret and isinstance(value, bytes):
        yield repr(value)[2:-1]
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _leaves(item, secret or hidden(str(key)), hidden, depth + 1)
    elif isinstance(value, (list, tuple, set, frozenset)):
        for item in value:
            yield from _leaves(item, secret, hidden, depth + 1)
    else:
        for name in getattr(type(value), "__dataclass_fields__", ()) or getattr(type(value), "model_fields", ()):
            yield from _leaves(getattr(value, name, None), secret or hidden(name), hidden, depth + 1)


def _spelled(found: Iterable[str]) -> Sequence[str]:
    """Longest first, each also as ``repr`` writes it: an error repeats its arguments so."""
    texts = {text for text in found if len(text) >= SHORTEST_SECRET}
    return sorted(texts | {repr(text)[1:-1] for text in texts}, key=len, reverse=True)


def _without(text: str, secrets: Iterable[str]) -> str:
    for secret in secrets:
        text = text.replace(secret, PLACEHOLDER)
    return text


def _cleaned(value: Any, secrets: Sequence[str], depth: int) -> Any:
    if value is None or isinstance(value, bool) or depth > DEEPEST:
        return value if depth <= DEEPEST else PLACEHOLDER
    if isinstance(value, str):
        return _without(value, secrets)
    if type(value) in (list, tuple, set, frozenset):
        return type(value)(_cleaned(item, secrets, depth + 1) for item in value)
    if isinstance(value, Mapping):
        return {_cleaned(key, secrets, depth + 1): _cleaned(item, secrets, depth + 1) for key, item in value.items()}
    return PLACEHOLDER if any(secret in _shown(value) for secret in secrets) else value


# -- errors ------------------------------------------------------------------------------------------------------------


def _told(error: BaseException) -> str:
    """All that a log, an event or a page of errors may say of it."""
    try:
        lines = traceback.format_exception(type(error), error, error.__traceback__)
    except Exception:  # noqa: BLE001 - a broken __str__ of somebody's own
        lines = []
    return "".join([*lines, _shown(error), _shown(getattr(error, "__dict__", {}))])


def _shown(value: Any) -> str:
    try:
        return repr(value) + str(value)
    except Exception:  # noqa: BLE001 - a broken __repr__ of somebody's own
        return ""


def _alike(error: BaseException, scrub: Scrubber, depth: int) -> BaseException:
    made = _of_its_class(error, scrub, depth)
    if made is None or scrub.shows(_told(made)):
        name, text = type_name(type(error)).rpartition(".")[2], _without(str(error), scrub.secrets)
        made = DurableError(f"{name}: {text}")
    if depth < DEEPEST:
        made.__cause__ = _alike(error.__cause__, scrub, depth + 1) if error.__cause__ is not None else None
        made.__context__ = _alike(error.__context__, scrub, depth + 1) if error.__context__ is not None else None
    made.__suppress_context__ = error.__suppress_context__
    return made.with_traceback(error.__traceback__)


def _of_its_class(error: BaseException, scrub: Scrubber, depth: int) -> BaseException | None:
    """Without a call of its ``__init__``, which may ask for anything."""

    def clean(value: Any) -> Any:
        if isinstance(value, BaseException):
            return _alike(value, scrub, depth + 1) if depth < DEEPEST else None
        if type(value) in (list, tuple):
            return type(value)(clean(each) for each in value)
        return _cleaned(value, scrub.secrets, 0)

    try:
        args = tuple(clean(value) for value in error.args)
        made = type(error).__new__(type(error), *args)
        made.args = args
        for name, value in getattr(error, "__dict__", {}).items():
            made.__dict__[name] = clean(value)
        str(made)
    except Exception:  # noqa: BLE001 - whatever a class of somebody's own makes of that
        return None
    return made
