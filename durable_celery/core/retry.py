"""How often and when a step is tried again. Pure: the dice come in as a number from 0 to 1."""

from __future__ import annotations

import builtins
import dataclasses
import math
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from durable_celery.errors import BadValue, type_name

Duration = timedelta | float | int
Errors = Iterable[type[BaseException] | str] | type[BaseException] | str
PROGRAMMING_ERRORS = ("TypeError", "NameError", "ImportError", "SyntaxError", "NotImplementedError")
LONGEST = timedelta(days=3650)


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """When a failed attempt is followed by another.

    ``maximum_attempts`` counts attempts that ended in an error or time-out, the first included; 0 means no limit.
    Intervals are timedelta or seconds. The delay after the n-th failure is
    ``min(maximum_interval, initial_interval * backoff_coefficient ** (n - 1))``; with ``jitter`` it is drawn from
    [half, whole] of that ("equal jitter", Marc Brooker, "Exponential Backoff And Jitter").
    ``non_retryable`` and ``retry_on`` are exception classes or dotted names, subclasses included; where both name an
    error, the nearer class decides. Programming errors (TypeError, NameError, ImportError, SyntaxError,
    NotImplementedError) are retried only where ``retry_on`` names them or a class above them; all others are anyway.
    A bad value raises ``BadValue`` here, so at import.
    """

    initial_interval: Duration = 2
    backoff_coefficient: float = 2.0
    maximum_interval: Duration = 600
    maximum_attempts: int = 5
    jitter: bool = True
    non_retryable: Errors = ()
    retry_on: Errors = ()

    def __post_init__(self) -> None:
        put = object.__setattr__
        put(self, "initial_interval", seconds_of(self.initial_interval, "RetryPolicy.initial_interval", minimum=0))
        put(self, "maximum_interval", seconds_of(self.maximum_interval, "RetryPolicy.maximum_interval", minimum=0))
        coefficient = self.backoff_coefficient
        if (
            isinstance(coefficient, bool)
            or not isinstance(coefficient, (int, float))
            or not 1 <= coefficient < math.inf
        ):
            raise _bad("backoff_coefficient", coefficient, "a finite number >= 1")
        attempts = self.maximum_attempts
        if isinstance(attempts, bool) or not isinstance(attempts, int) or attempts < 0:
            raise _bad("maximum_attempts", attempts, "an int >= 1, or 0 for no limit")
        if not isinstance(self.jitter, bool):
            raise _bad("jitter", self.jitter, "True or False")
        put(self, "non_retryable", _names("non_retryable", self.non_retryable))
        put(self, "retry_on", _names("retry_on", self.retry_on))

    def as_data(self) -> dict[str, Any]:
        """Plain JSON, as it is copied onto the row."""
        return {field.name: _plain(getattr(self, field.name)) for field in dataclasses.fields(self)}

    @classmethod
    def from_data(cls, data: dict[str, Any]) -> RetryPolicy:
        """The policy of a row; fields of a newer release are ignored."""
        known = {field.name for field in dataclasses.fields(cls)}
        return cls(**{name: value for name, value in data.items() if name in known})


def policy_of(retry: RetryPolicy | int | None) -> RetryPolicy:
    """What ``retry=`` means: a policy, an int >= 1 (maximum attempts), or None (one attempt)."""
    if retry is None:
        return RetryPolicy(maximum_attempts=1)
    if isinstance(retry, RetryPolicy):
        return retry
    if isinstance(retry, bool) or not isinstance(retry, int) or retry < 1:
        raise BadValue(
            f"retry={retry!r} is not allowed: give an int >= 1 (maximum attempts, the first included), None for one "
            "attempt, or a RetryPolicy (maximum_attempts=0 in it means no limit)",
            path="retry",
        )
    return RetryPolicy(maximum_attempts=retry)


def delay_after(policy: RetryPolicy, failures: int, draw: float) -> timedelta:
    """How long to wait after the ``failures``-th failed attempt (from 1); ``draw`` is a number from 0 to 1.

    Always finite, never over ``maximum_interval``: the power is taken as a logarithm, so no count overflows.
    """
    first, cap = float(policy.initial_interval), float(policy.maximum_interval)  # type: ignore[arg-type]
    whole = min(first, cap)
    if 0 < first < cap:
        power = math.log(first) + (max(failures, 1) - 1) * math.log(policy.backoff_coefficient)
        whole = cap if power >= math.log(cap) else min(cap, math.exp(power))
    if policy.jitter:
        whole *= 0.5 + 0.5 * min(max(draw, 0.0), 1.0)
    return min(timedelta(seconds=whole), LONGEST)


def retries(policy: RetryPolicy, failures: int, error_types: Iterable[str]) -> bool:
    """Whether another attempt follows ``failures`` failed ones, the last with an error of these types (own first)."""
    if policy.maximum_attempts and failures >= policy.maximum_attempts:
        return False
    never: Any = policy.non_retryable
    again: Any = policy.retry_on
    types = tuple(error_types)
    for name in types:
        if name in never:
            return False
        if name in again:
            return True
    return not set(types) & set(PROGRAMMING_ERRORS)


def seconds_of(value: Any, what: str, *, minimum: float = 0, longest: timedelta = LONGEST) -> float:
    """A duration given as timedelta or seconds, in seconds; anything else, NaN or out of range raises ``BadValue``."""
    seconds = value.total_seconds() if isinstance(value, timedelta) else value
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)):
        raise BadValue(f"{what} must be a timedelta or a number of seconds, got {value!r}", path=what)
    try:
        number = float(seconds)
    except OverflowError:  # an int too big for a float
        number = math.nan
    if not math.isfinite(number) or not minimum <= number <= longest.total_seconds():
        raise BadValue(
            f"{what} must be from {minimum:g} to {longest.total_seconds():g} seconds, got {value!r:.80}", path=what
        )
    return number


def _names(field: str, kinds: Any) -> tuple[str, ...]:
    given = (kinds,) if isinstance(kinds, (str, type)) or not isinstance(kinds, Iterable) else tuple(kinds)
    return tuple(_error_name(field, kind) for kind in given)


def _error_name(field: str, kind: Any) -> str:
    known = getattr(builtins, kind, kind) if isinstance(kind, str) else kind
    if isinstance(known, type) and issubclass(known, BaseException):
        return type_name(known)
    if isinstance(known, str) and "." in known:
        return known
    raise _bad(field, kind, "exception classes or their dotted names")


def _bad(field: str, value: Any, allowed: str) -> BadValue:
    return BadValue(f"RetryPolicy.{field}={value!r} is not allowed, expected {allowed}", path=f"RetryPolicy.{field}")


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value
