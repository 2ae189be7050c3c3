"""An error as data: recorded once, shown and matched for ever, never rebuilt by calling its class."""

from __future__ import annotations

import dataclasses
import json
import traceback as tracebacks
from dataclasses import dataclass, field
from typing import Any

from durable_celery.errors import NonRetryable, StepFailed, UpdateRejected, WorkflowFailed, type_name

TEXT = 4_000  # characters of a message that are kept
TRACE = 20_000  # characters of a traceback that are kept, its end
CAUSES = 20  # links of a chain of causes that are kept


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """One link of the chain that led to an error, nearest first.

    ``implied``: it was merely being handled when the next one was raised (Python's ``__context__``). It is shown, but
    the error was not raised because of it, so nothing matches it.
    """

    type: str
    types: tuple[str, ...] = ()
    message: str = ""
    attributes: dict[str, Any] = field(default_factory=dict)
    implied: bool = False

    def __str__(self) -> str:
        return brief(self.type, self.message)


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """What is kept of an exception. ``types`` are the dotted names of its class and bases, the class first.

    ``causes`` lead from it to where it began, across steps and children: a workflow that failed by a ``StepFailed`` has
    the step's own error as its next link.
    """

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
    causes: tuple[Cause, ...] = ()

    def to_text(self) -> str:
        """ASCII JSON, so that NUL and lone surrogates in messages fit every database."""
        return json.dumps(_told(dataclasses.asdict(self)))

    @classmethod
    def from_text(cls, text: str) -> Failure:
        """The failure of a row; fields of a newer release are ignored."""
        data = json.loads(text)
        data["types"] = tuple(data.get("types", ()))
        data["earlier"] = tuple(data.get("earlier", ()))
        data["causes"] = tuple(_cause(each) for each in data.get("causes", ()))
        known = {f.name for f in dataclasses.fields(cls)}
        return cls(**{k: v for k, v in data.items() if k in known})

    @property
    def brief(self) -> str:
        """``ValueError: no luck``, one line, printable on every terminal."""
        return brief(self.type, self.message)


def failure_of(error: BaseException, **flags: Any) -> Failure:
    """What to keep of an exception; survives odd constructors, a raising ``__str__``, cycles and ``SystemExit``."""
    if isinstance(error, NonRetryable):
        why = error.why
        if isinstance(why, BaseException):
            return dataclasses.replace(failure_of(why), final=True, **flags)
        return dataclasses.replace(_plain_failure(error, _message(why)), final=True, **flags)
    return dataclasses.replace(_plain_failure(error, _message(error)), **flags)


def brief(kind: str, message: str) -> str:
    """An error in one line, printable on every terminal: the last part of its class's name, and its text."""
    short = kind.rpartition(".")[2]
    return printable((f"{short}: {message}" if message else short).replace("\n", " "))[:300]


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
    kinds = _kinds(error)
    return Failure(
        type=kinds[0], types=kinds, message=message[:TEXT], traceback=_trace(error), attributes=_attributes(error),
        causes=_causes(error),
    )  # fmt: skip


def _causes(error: BaseException) -> tuple[Cause, ...]:
    """What led to an error: what it stands for (a step's or child's end), else why or while what it was raised."""
    found: list[Cause] = []
    seen = {id(error)}
    at: BaseException | None = error
    implied = False
    while at is not None and len(found) < CAUSES:
        recorded = recorded_chain(at)
        if recorded:
            found += [dataclasses.replace(each, implied=each.implied or implied) for each in recorded]
            break
        because = at.__cause__
        implied = implied or because is None
        at = because if because is not None else None if at.__suppress_context__ else at.__context__
        if at is None or id(at) in seen:
            break
        seen.add(id(at))
        found.append(_link(at, implied))
    return tuple(found[:CAUSES])


def recorded_chain(error: BaseException) -> list[Cause]:
    """What the error of a step, child, workflow or update stands for, with its causes; nothing of others."""
    if not isinstance(error, (StepFailed, UpdateRejected, WorkflowFailed)) or not error.error_type:
        return []
    own = Cause(
        type=error.error_type, types=tuple(error.error_types), message=error.message[:TEXT],
        attributes=_plain(error.attributes),
    )  # fmt: skip
    return [own, *error.causes]


def _link(error: BaseException, implied: bool) -> Cause:
    kinds = _kinds(error)
    return Cause(
        type=kinds[0], types=kinds, message=_message(error)[:TEXT], attributes=_attributes(error), implied=implied
    )


def _kinds(error: BaseException) -> tuple[str, ...]:
    return tuple(type_name(k) for k in type(error).__mro__ if issubclass(k, BaseException))


def _message(error: object) -> str:
    try:
        return str(error)
    except BaseException as second:  # noqa: BLE001 - a broken __str__ must not replace the true error, nor end a process
        return f"<{type(error).__name__} whose __str__ raised {type(second).__name__}>"


def _trace(error: BaseException) -> str:
    try:
        lines = tracebacks.format_exception(type(error), error, error.__traceback__)
    except Exception:  # noqa: BLE001 - a broken __str__ or __cause__ again
        lines = tracebacks.format_tb(error.__traceback__)
    return "".join(lines)[-TRACE:]


def _attributes(error: BaseException) -> dict[str, Any]:
    given = vars(error).items() if hasattr(error, "__dict__") else ()
    return _plain({name: value for name, value in list(given)[:20] if name != "causes"})


def _plain(given: dict[str, Any]) -> dict[str, Any]:
    """Those of public name that JSON holds as they are (tuples become lists), and that are not too long."""
    kept: dict[str, Any] = {}
    for name, value in given.items():
        if name.startswith("_") or not isinstance(value, (str, int, float, bool, type(None), list, tuple, dict)):
            continue
        try:
            text = json.dumps(value, allow_nan=False)
            if len(text) <= TEXT:
                kept[name] = json.loads(text)  # plain: subclasses of dict and list may not be copied as such
        except Exception:  # noqa: BLE001 - a mapping of somebody's own may raise anything when it is read
            continue
    return kept


def _told(data: dict[str, Any]) -> dict[str, Any]:
    """Without what is empty."""
    told = {k: v for k, v in data.items() if v not in ("", (), {}, False)}
    if "causes" in told:
        told["causes"] = [_told(each) for each in told["causes"]]
    return told


def _cause(data: dict[str, Any]) -> Cause:
    known = {f.name for f in dataclasses.fields(Cause)}
    given: dict[str, Any] = {name: value for name, value in data.items() if name in known}
    return Cause(**{**given, "types": tuple(given.get("types", ()))})
