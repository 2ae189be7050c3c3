"""What goes to and fro between a running workflow and the outside: signals, updates, queries, each by its name."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, Generic, ParamSpec, TypeVar, overload
from weakref import WeakValueDictionary

from durable_celery import codec, payloads, runtime
from durable_celery.core import handlers, labels, scope
from durable_celery.core.commands import Command, SignalCommand
from durable_celery.core.retry import Duration, seconds_of
from durable_celery.errors import BadValue
from durable_celery.twins import in_thread

P = ParamSpec("P")
T = TypeVar("T")
D = TypeVar("D")

# Every living signal by name, for those who have but the name: the admin and the command line. Of several with one
# name a typed one. Weak, for a body may make names by the thousand.
signals: WeakValueDictionary[str, Signal[Any]] = WeakValueDictionary()

_RAISE: Any = type("Raise", (), {"__repr__": lambda self: "<raise SignalTimeout>"})()


class Signal(Generic[T]):
    """A kind of message, by name: ``paid = Signal("paid", str)``, ``paid.wait()`` inside, ``paid.send(handle, "4")``.

    Given a ``type``, payloads of another type are refused where they are sent (``BadValue``), and type checkers know
    what a wait gives. Two with one name are the same kind. A name of 1 to 191 characters, else ``BadValue``. Messages
    are kept in the order they come, until a wait or a handler takes them; each is taken once.
    """

    __slots__ = ("__weakref__", "name", "type")

    @overload
    def __init__(self: Signal[Any], name: str) -> None: ...
    @overload
    def __init__(self, name: str, type: type[T]) -> None: ...
    def __init__(self, name: str, type: Any = None) -> None:
        self.name = checked_name("a signal", name)
        self.type = type
        known = signals.get(name)
        if known is None or known.type is None or type is not None:
            signals[name] = self

    def __repr__(self) -> str:
        return f"<signal {self.name!r}>"

    @overload
    def wait(self, timeout: Duration | None = None, *, warn_after: Duration | None = None) -> Command[T]: ...
    @overload
    def wait(self, timeout: Duration | None, default: D, warn_after: Duration | None = None) -> Command[T | D]: ...
    @overload
    def wait(
        self, timeout: Duration | None = None, *, default: D, warn_after: Duration | None = None
    ) -> Command[T | D]: ...
    def wait(self, timeout: Any = None, default: Any = _RAISE, warn_after: Any = None) -> Command[Any]:
        """Wait for the next message of this name; its payload is the value. Messages sent before count, oldest first.

        ``timeout`` (timedelta or seconds) runs from the turn that first yields it; at it the value is ``default``, or
        ``SignalTimeout`` is raised. ``timeout=0`` takes only what is there. ``warn_after`` (timedelta or seconds):
        waiting longer counts as stuck. ``UsageError`` for a default without a timeout, ``BadValue`` for what is no
        duration.
        """
        seconds = None if timeout is None else seconds_of(timeout, f"timeout of signal {self.name!r}", minimum=0)
        if default is not _RAISE and timeout is None:
            raise BadValue(
                f"signal {self.name!r}: default= without timeout= is never used; give a timeout", path="default"
            )
        with payloads.of(scope.instance_id()):
            text = None if default is _RAISE else codec.encode(default, root=f"default of signal {self.name!r}")
        return SignalCommand(
            name=self.name,
            seconds=seconds,
            default=text,
            warn_seconds=None if warn_after is None else seconds_of(warn_after, "warn_after", minimum=0),
        )

    def on(self, handler: Callable[[T], Any]) -> Callable[[T], Any]:
        """Give each message of this name to ``handler(payload)`` from now on, those that came before first; in a body.

        It is a plain function that runs in the order of events, before the body resumes, live and on replay alike; what
        it returns means nothing, and ``wait_until(lambda: ...)`` wakes the body by what it noted. An exception of it
        counts as one that leaves the body. A second call puts another handler in place. ``UsageError`` for a generator
        or async function, and where the body also waits for this name. Returns ``handler``, so that it decorates too.
        """
        run = scope.required(f"{self!r}.on()", "outside, use signal.send(handle, payload)")
        handlers.check_function(handler, f"the handler of signal {self.name!r}", 1)
        run.handlers.on(self.name, handler)
        return handler

    def send(self, target: Any, payload: T | None = None, *, signal_id: str | None = None) -> None:
        """Send to a handle, an instance or an id, in the current transaction; a rollback takes it back.

        A second message with the same ``signal_id`` changes nothing. ``BadValue`` for a payload of another type,
        ``NotSerializable``, ``InstanceClosed`` if the instance has ended, ``InstanceNotFound`` if there is none.
        """
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


def query(name: str, function: Callable[..., Any]) -> None:
    """Answer ``handle.query(name, *args)`` with what ``function(*args)`` returns from now on; in a body.

    It looks at the body's own variables, at any time, after the end as well, and changes nothing: it may build no
    command, record nothing and ask no database. What it raises is raised at who asks. Arguments and answer are copies,
    as the codec makes them. A second call with the name puts another function in place. ``UsageError`` for a generator
    or async function.
    """
    run = scope.required(f"query({name!r}, ...)", "outside, ask by handle.query(name)")
    handlers.check_function(function, f"the function of query {name!r}")
    run.handlers.query(checked_name("a query", name), function)


def update(name: str, function: Callable[P, Any], validate: Callable[P, Any] | None = None) -> None:
    """Take ``handle.update(name, *args)`` from now on: ``function(*args)`` changes the body's variables; in a body.

    What it returns is the sender's answer, kept with the message. It runs once, in the order of events, before the body
    resumes, and again at the same place on replay; what it raises becomes the sender's ``UpdateRejected`` and the
    instance goes on. ``validate(*args)`` runs before it and only looks: if it raises, or returns ``False``, the sender
    gets ``UpdateRejected`` and nothing of the update is kept. A second call with the name puts others in place.
    ``UsageError`` for generator or async functions.
    """
    run = scope.required(f"update({name!r}, ...)", "outside, send one by handle.update(name, *args)")
    handlers.check_function(function, f"the function of update {name!r}")
    if validate is not None:
        handlers.check_function(validate, f"the validator of update {name!r}")
    run.handlers.update(checked_name("an update", name), function, validate)


def checked_name(what: str, name: Any) -> str:
    """A name of 1 to 191 characters that every database keeps; ``BadValue`` otherwise."""
    if not isinstance(name, str) or not name.strip() or len(name) > 191:
        raise BadValue(f"{what} needs a name of 1 to 191 characters, got {name!r}", path="name")
    return labels.check_text(name, "name")


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
