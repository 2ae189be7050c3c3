"""An error as data: recorded once, shown and matched for ever, never rebuilt by calling its class."""

from __future__ import annotations

import dataclasses
import json
import traceback as tracebacks
from dataclasses import dataclass, field
from typing import Any

from durable_celery.errors import NonRetryable, type_name

TEXT = 4_000  # characters of a message that are kept
TRACE = 20_000  # characters of a traceback that are kept, its end


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """What is kept of an exception. ``types`` are the dotted names of its class and bases, the class first."""

    type: str
    types: tuple[str, ...] = ()
    message: str = ""
    traceback: str = ""
    attributes: dict[str, Any] = field(default_factory=dict)
    timed_out: bool = False
    lost: bool = False
    cancelled: bool = False
    final: bool = False  # the body said so by NonRetryable
    earlier: tuple[str, ...] = ()  # the errors of the attempts before, one line each

    def to_text(self) -> str:
        """ASCII JSON, so that NUL and lone surrogates in messages fit every database."""
        return json.dumps({k: v for k, v in dataclasses.asdict(self).items() if v not in ("", (), {}, False)})

    @classmethod
    def from_text(cls, text: str) -> Failure:
        """The failure of a row; fields of a newer release are ignored."""
        data = json.loads(text)
        data["types"] = tuple(data.get("types", ()))
        data["earlier"] = tuple(data.get("earlier", ()))
        known = {f.name for f in dataclasses.fields(cls)}
        return cls(**{k: v for k, v in data.items() if k in known})

    @property
    def brief(self) -> str:
        """``ValueError: no luck``, one line, printable on every terminal."""
        line = f"{self.type.rpartition('.')[2]}: {self.message}" if self.message else self.type.rpartition(".")[2]
        return printable(line.replace("\n", " "))[:300]


def failure_of(error: BaseException, **flags: Any) -> Failure:
    """What to keep of an exception; survives odd constructors, a raising ``__str__``, cycles and ``SystemExit``."""
    if isinstance(error, NonRetryable):
        why = error.why
        if isinstance(why, BaseException):
            return dataclasses.replace(failure_of(why), final=True, **flags)
        return dataclasses.replace(_plain_failure(error, str(why)), final=True, **flags)
    return dataclasses.replace(_plain_failure(error, _message(error)), **flags)


def timed_out(message: str) -> Failure:
    """The failure of an attempt or step that ran out of time."""
    return Failure(type="TimeoutError", types=("TimeoutError",), message=message, timed_out=True)


def lost(message: str) -> Failure:
    """The failure of an attempt whose process is gone."""
    return Failure(type="durable_celery.Lost", types=("durable_celery.Lost",), message=message, lost=True)


def printable(text: str) -> str:
    """The text without NUL and lone surrogates, for columns and terminals that refuse them."""
    return text.replace("\0", "\\x00").encode("utf-8", "backslashreplace").decode()


def _plain_failure(error: BaseException, message: str) -> Failure:
    kinds = tuple(type_name(k) for k in type(error).__mro__ if issubclass(k, BaseException))
    return Failure(
        type=kinds[0], types=kinds, message=message[:TEXT], traceback=_trace(error), attributes=_attributes(error)
    )


def _message(error: BaseException) -> str:
    try:
        return str(error)
    except Exception as second:  # a broken __str__ must not replace the true error
        return f"<{type(error).__name__} whose __str__ raised {type(second).__name__}>"


def _trace(error: BaseException) -> str:
    try:
        lines = tracebacks.format_exception(type(error), error, error.__traceback__)
    except Exception:  # noqa: BLE001 - a broken __str__ or __cause__ again
        lines = tracebacks.format_tb(error.__traceback__)
    return "".join(lines)[-TRACE:]


def _attributes(error: BaseException) -> dict[str, Any]:
    kept: dict[str, Any] = {}
    for name, value in list(vars(error).items())[:20] if hasattr(error, "__dict__") else ():
        if name.startswith("_") or not isinstance(value, (str, int, float, bool, type(None), list, dict)):
            continue
        try:
            text = json.dumps(value, allow_nan=False)
            if len(text) <= TEXT:
                kept[name] = json.loads(text)  # plain: subclasses of dict and list may not be copied as such
        except (TypeError, ValueError, RecursionError):
            continue
    return kept
