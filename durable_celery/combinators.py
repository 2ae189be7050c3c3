"""Commands made of commands, and waits for time."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timezone
from typing import Any, TypeVar, overload

from durable_celery.core import scope
from durable_celery.core.commands import (
    Command,
    GatherCommand,
    GatherRules,
    ShieldCommand,
    StepCommand,
    TimerCommand,
    excusing,
)
from durable_celery.core.conditions import ConditionCommand
from durable_celery.core.handles import Handle, SpawnCommand, joined
from durable_celery.core.polling import PollCommand, PollRules
from durable_celery.core.racing import RaceCommand, Winner
from durable_celery.core.retry import Duration, seconds_of
from durable_celery.errors import BadValue, UsageError
from durable_celery.messages import instant, span

A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")
E = TypeVar("E")
F = TypeVar("F")
T = TypeVar("T")
Member = Command[T] | Handle[T]  # what may stand beside others


@overload
def gather(*, limit: int | None = None, **named: Member[T]) -> Command[dict[str, T]]: ...
@overload
def gather(a: Member[A], /, *, limit: int | None = None) -> Command[tuple[A]]: ...
@overload
def gather(a: Member[A], b: Member[B], /, *, limit: int | None = None) -> Command[tuple[A, B]]: ...
@overload
def gather(a: Member[A], b: Member[B], c: Member[C], /, *, limit: int | None = None) -> Command[tuple[A, B, C]]: ...
@overload
def gather(
    a: Member[A], b: Member[B], c: Member[C], d: Member[E], /, *, limit: int | None = None
) -> Command[tuple[A, B, C, E]]: ...
@overload
def gather(
    a: Member[A], b: Member[B], c: Member[C], d: Member[E], e: Member[F], /, *, limit: int | None = None
) -> Command[tuple[A, B, C, E, F]]: ...
@overload
def gather(*members: Member[T], limit: int | None = None) -> Command[tuple[T, ...]]: ...
@overload
def gather(
    *members: Member[T],
    return_exceptions: bool = False,
    limit: int | None = None,
    needed: int | None = None,
    tolerate: int = 0,
) -> Command[tuple[Any, ...]]: ...
@overload
def gather(
    *,
    return_exceptions: bool = False,
    limit: int | None = None,
    needed: int | None = None,
    tolerate: int = 0,
    **named: Member[Any],
) -> Command[dict[str, Any]]: ...
def gather(  # type: ignore[misc]  # options are no members, whatever the first overload may take
    *members: Any,
    return_exceptions: bool = False,
    limit: int | None = None,
    needed: int | None = None,
    tolerate: int = 0,
    **named: Any,
) -> Command[Any]:
    """Run commands side by side; a tuple of their values by position (a dict for named ones). Nest at will.

    Waits until every member has ended; then the error of the lowest failed position is raised, with ``.results`` and
    ``.errors`` of all members. After a failure no new member starts. ``limit``: at most so many run at once.
    ``return_exceptions``: errors stand in their places. ``tolerate``: up to so many failures stand as their exceptions
    and stop nothing. ``needed``: done at so many successes, the rest is cancelled, their places are None.

    A member is a command, a handle or a Celery signature; no member gives ``()``. ``UsageError`` for anything else, and
    for members by position and by name at once; ``BadValue`` for an option out of range. Named after asyncio's gather;
    ``needed`` and ``tolerate`` after the completion rules of AWS's durable functions.
    """
    with excusing(*members, *named.values()):
        commands = _members("gather", members, named)
        rules = GatherRules(
            names=tuple(named) if named else None,
            return_exceptions=_flag(return_exceptions),
            limit=count_of("limit", limit, 1, None),
            needed=count_of("needed", needed, 1, len(commands)),
            tolerate=count_of("tolerate", tolerate, 0, None) or 0,
        )
    return GatherCommand(commands, rules)


def wait_until(condition: Callable[[], Any], timeout: Duration | None = None) -> Command[bool]:
    """Wait until ``condition()`` is true: ``yield from wait_until(lambda: len(seen) >= 2, timeout=60)``.

    True, or what the condition says at the time-out (timedelta or seconds, from the turn that yields it; None: for
    ever). It is looked at when the body yields it and after each message or outcome; time alone wakes nothing. It must
    be pure: it may look at the body's own values, ``now()`` and ``handle.done``, and build or record nothing, else the
    instance is BLOCKED with a ``UsageError``. An error it raises is raised at the yield. ``BadValue`` for what cannot
    be called. The idea is Temporal's.
    """
    if not callable(condition):
        raise BadValue(
            f"wait_until takes a function without arguments, got {condition!r:.80}; write wait_until(lambda: ...)",
            path="condition",
        )
    seconds = None if timeout is None else seconds_of(timeout, "timeout of wait_until", minimum=0)
    return ConditionCommand(condition, seconds=seconds)


def poll(
    command: Command[T], until: Callable[[T], Any], every: Duration = 60, timeout: Duration | None = None
) -> Command[T]:
    """Run a step every so often until ``until(result)`` is true, and give that result.

    ``yield from poll(status_of(order), until=lambda status: status == "paid", every=30, timeout=3600)``.

    The first run is at once, each next one ``every`` (timedelta or seconds, over 0) after the result before was looked
    at. At ``timeout`` (None: never) ``PollTimeout`` is raised. It is one row, however long it takes. Each run has the
    retries and time-outs of the step afresh, but for ``schedule_to_close_timeout``: ``timeout`` stands in its place. A
    run that fails for good raises ``StepFailed``. ``until`` must be pure and may only look, as the condition of
    ``wait_until``; it is asked once about each result, never on replay, and an error it raises blocks the instance.
    ``UsageError`` for what is no call of a step. After the waits for a condition of AWS's durable functions.
    """
    with excusing(command):
        member = _polled(_command("poll", 0, command))
        if not callable(until):
            raise BadValue(f"poll needs until=, a function of the result, got {until!r:.80}", path="until")
        seconds = seconds_of(every, "every of poll", minimum=0)
        if not seconds:
            raise BadValue(f"every={every!r} of poll must be over 0", path="every")
        rules = PollRules(
            every=seconds,
            timeout=None if timeout is None else seconds_of(timeout, "timeout of poll", minimum=0),
            schedule_to_start=member.terms.schedule_to_start,
        )
    return PollCommand(member, likes=until, rules=rules)


@overload
def race(a: Member[A], /) -> Command[Winner[int, A]]: ...
@overload
def race(a: Member[A], b: Member[B], /) -> Command[Winner[int, A | B]]: ...
@overload
def race(a: Member[A], b: Member[B], c: Member[C], /) -> Command[Winner[int, A | B | C]]: ...
@overload
def race(a: Member[A], b: Member[B], c: Member[C], d: Member[E], /) -> Command[Winner[int, A | B | C | E]]: ...
@overload
def race(*members: Member[T]) -> Command[Winner[int, T]]: ...
@overload
def race(**named: Member[Any]) -> Command[Winner[str, Any]]: ...
def race(*members: Any, **named: Any) -> Command[Any]:
    """Run commands against each other; a ``Winner(name, value)`` of the one that settles first. Nest at will.

    ``name`` is the keyword of the winner, or its index from 0. If the first to settle has failed, its error is raised.
    The others are given up at once: what no worker has claimed never runs; a claimed step is told, gets no further
    attempt and stays ABANDONED until it ends, and its result is kept and shown, not delivered. Messages that a loser
    had taken are unread again, in their old order. Handles are merely watched: what they stand for goes on.
    ``UsageError`` without members and for what is no command. After Azure Durable Functions' WhenAny.
    """
    with excusing(*members, *named.values()):
        commands = _members("race", members, named)
    if not commands:
        raise BadValue("race takes at least one command: with none it would never end", path="members")
    return RaceCommand(commands, tuple(named) if named else None)


def spawn(command: Command[T]) -> Command[Handle[T]]:
    """Start a command beside the body: ``handle = yield from spawn(charge(...))`` goes on at once.

    ``yield from handle`` joins, any number of times: the value, or the error. ``yield from handle.cancel()`` gives the
    work up, ``handle.done`` tells whether it has ended. An error nobody joins is kept in the history and changes
    nothing. A cancel of the body leaves spawned work running while the body cleans up; the body's end gives up what is
    still open then. ``UsageError`` for what is no command.
    """
    return SpawnCommand(_command("spawn", 0, command))


def sleep(seconds: Duration | None = None, **units: float) -> Command[None]:
    """Wait for a timedelta or seconds, or for ``sleep(days=3, hours=2)``; the value is None.

    It counts from the turn that yields it; zero or less means the next tick. It costs a row and nothing else, however
    long. ``BadValue`` for what is no duration, or one beyond ten years.
    """
    return TimerCommand(seconds=span(seconds, units))


def sleep_until(when: Any) -> Command[None]:
    """Wait until an aware datetime; the value is None. One in the past means the next tick.

    ``BadValue`` for a naive one, and for anything else.
    """
    try:
        until = instant(when, "sleep_until").astimezone(timezone.utc)
    except OverflowError:
        raise BadValue(f"sleep_until({when!r}) is beyond the last day there is", path="sleep_until") from None
    return TimerCommand(until=until)


def shield(command: Member[T]) -> Command[T]:
    """Run a command to its end, with all its attempts, whatever cancels the body: ``yield from shield(ship(order))``.

    Its value or error is the command's own. A cancel or ``execution_timeout`` that comes meanwhile waits for it, and is
    thrown at the next yield; ``terminate`` does not wait. ``UsageError`` for what is no command. After asyncio.shield.
    """
    return ShieldCommand(_command("shield", 0, command))


def _members(what: str, members: tuple[Any, ...], named: dict[str, Any]) -> list[Command[Any]]:
    if members and named:
        raise UsageError(f"{what} takes its commands either by position or by name, not both")
    if len(members) == 1 and not isinstance(members[0], Command) and isinstance(members[0], (list, tuple)):
        raise BadValue(
            f"{what} takes commands, not a {type(members[0]).__name__}; unpack it: {what}(*commands)", path="members"
        )
    places = named.items() if named else enumerate(members)
    return [_command(what, place, member) for place, member in places]


def _polled(member: Command[T]) -> StepCommand[T]:
    if isinstance(member, StepCommand) and member.undo is None:
        return member
    what = f"{member.describe()} with a compensation" if isinstance(member, StepCommand) else member.describe()
    raise BadValue(f"poll takes the call of a step without a compensation, got {what}", path="command")


def _command(what: str, place: int | str, member: Any) -> Command[Any]:
    if isinstance(member, Command):
        return member
    adapted = joined(member) or scope.required(what, "yield it from a workflow").adapt(member)
    if adapted is not None:
        return adapted
    kind = type(member).__name__
    fix = f"{what} takes commands"
    if kind == "generator":
        fix = f"a helper generator cannot run beside others; {fix}"
    raise BadValue(f"{what} member {place} is a {kind} {member!r:.80}; {fix}", path=f"[{place}]")


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise BadValue(f"return_exceptions={value!r} is not allowed, expected True or False", path="return_exceptions")
    return value


def count_of(name: str, value: Any, least: int, most: int | None) -> int | None:
    """An option that counts members: None, or an int from ``least`` to ``most``; else ``BadValue``."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or value < least or (most is not None and value > most):
        upto = f" to {most}, the number of members" if most is not None else " on"
        raise BadValue(f"{name}={value!r} is not allowed, expected an int from {least}{upto}", path=name)
    return value
