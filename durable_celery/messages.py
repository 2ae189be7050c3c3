"""Signals: messages to a running workflow, by name, in order, each delivered once."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, Generic, TypeVar, overload
from weakref import WeakValueDictionary

from durable_celery import codec, runtime
from durable_celery.core import labels
from durable_celery.core.commands import Command, SignalCommand
from durable_celery.core.retry import Duration, seconds_of
from durable_celery.errors import BadValue, UsageError
from durable_celery.twins import in_thread

T = TypeVar("T")
D = TypeVar("D")

# Every living signal by name, for those who have but the name: the admin and the command line. Of several with one
# name a typed one. Weak, for a body may make names by the thousand.
signals: WeakValueDictionary[str, Signal[Any]] = WeakValueDictionary()

_RAISE: Any = type("Raise", (), {"__repr__": lambda self: "<raise SignalTimeout>"})()


class Signal(Generic[T]):
    """A kind of message, by name. Given a ``type``, payloads of another type are refused where they are sent."""

    __slots__ = ("__weakref__", "name", "type")

    @overload
    def __init__(self: Signal[Any], name: str) -> None: ...
    @overload
    def __init__(self, name: str, type: type[T]) -> None: ...
    def __init__(self, name: str, type: Any = None) -> None:
        if not isinstance(name, str) or not name.strip() or len(name) > 191:
            raise BadValue(f"a signal needs a name of 1 to 191 characters, got {name!r}", path="name")
        labels.check_text(name, "name")
        self.name = name
        self.type = type
        known = signals.get(name)
        if known is None or known.type is None or type is not None:
            signals[name] = self

    def __repr__(self) -> str:
        return f"<signal {self.name!r}>"

    @overload
    def wait(self, timeout: Duration | None = None, *, warn_after: Duration | None = None) -> Command[T]: ...
    @overload
    def wait(
        self, timeout: Duration | None = None, *, default: D, warn_after: Duration | None = None
    ) -> Command[T | D]: ...
    def wait(self, timeout: Any = None, *, default: Any = _RAISE, warn_after: Any = None) -> Command[Any]:
        """Wait for the next message of this name; its payload is the value. Messages sent before count, oldest first.

        ``timeout`` (timedelta or seconds) runs from the turn that first yields it; at it the value is ``default``, or
        ``SignalTimeout`` is raised. ``timeout=0`` takes only what is there. ``warn_after``: waiting longer counts as
        stuck.
        """
        seconds = None if timeout is None else seconds_of(timeout, f"timeout of signal {self.name!r}", minimum=0)
        if default is not _RAISE and timeout is None:
            raise UsageError(f"signal {self.name!r}: default= without timeout= is never used; give a timeout")
        return SignalCommand(
            name=self.name,
            seconds=seconds,
            default=None if default is _RAISE else codec.encode(default, root=f"default of signal {self.name!r}"),
            warn_seconds=None if warn_after is None else seconds_of(warn_after, "warn_after", minimum=0),
        )

    def send(self, target: Any, payload: T | None = None, *, signal_id: str | None = None) -> None:
        """Send to a handle, an instance or an id, in the current transaction. See ``WorkflowHandle.signal``."""
        self.check(payload)
        runtime.client().signal(target, self.name, payload, signal_id)

    async def asend(self, target: Any, payload: T | None = None, *, signal_id: str | None = None) -> None:
        """``send`` for async code."""
        await in_thread(self.send)(target, payload, signal_id=signal_id)

    def check(self, payload: Any) -> None:
        """``BadValue`` if the payload is not of the signal's type."""
        if isinstance(self.type, type) and not isinstance(payload, self.type):
            raise BadValue(
                f"signal {self.name!r} carries a {self.type.__name__}, got {type(payload).__name__} "
                f"{codec.preview(payload)}",
                path="payload",
            )


def payload_of(name: str, data: Any) -> Any:
    """Plain JSON as the payload of the signal of this name: of its type where this process knows it, else as it is.

    ``BadValue`` names the path to what does not fit.
    """
    known = signals.get(name)
    if known is None:
        return data
    payload = codec.from_plain(data, known.type, path="payload")
    known.check(payload)
    return payload


def instant(when: Any, what: str) -> datetime:
    """An aware instant; naive datetimes and dates raise ``BadValue``."""
    if not isinstance(when, datetime):
        raise BadValue(f"{what} needs an aware datetime, got {type(when).__name__} {when!r}", path=what)
    if when.tzinfo is None or when.utcoffset() is None:
        raise BadValue(
            f"{what} needs an aware datetime, got the naive {when!r}: say which zone, "
            "e.g. when.replace(tzinfo=timezone.utc)",
            path=what,
        )
    return when


def span(seconds: Any, units: dict[str, float]) -> float:
    """Seconds of ``sleep``: a timedelta or number, or timedelta's keywords. Negative means at once."""
    if units:
        try:
            extra = timedelta(**units)
        except (TypeError, OverflowError, ValueError) as error:
            raise BadValue(
                f"sleep({', '.join(f'{k}={v!r}' for k, v in units.items())}): {error}", path="sleep"
            ) from None
        seconds = (
            extra if seconds is None else timedelta(seconds=seconds_of(seconds, "sleep", minimum=float("-inf"))) + extra
        )
    if seconds is None:
        raise BadValue("sleep() needs a duration: sleep(30), sleep(timedelta(...)) or sleep(days=3)", path="sleep")
    return max(0.0, seconds_of(seconds, "sleep", minimum=float("-inf")))
