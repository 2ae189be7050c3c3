"""The retry policy: what it allows, when it tries again, and how long it waits."""

from __future__ import annotations

import math
import random
from collections.abc import Iterable
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from durable_celery.core.retry import LONGEST, RetryPolicy, delay_after, policy_of, retries, seconds_of
from durable_celery.errors import BadValue, UsageError

SECOND = timedelta(seconds=1)


class Declined(Exception): ...


class LowFunds(Declined): ...


# -- delays --------------------------------------------------------------------------------------------------------


def test_delays_double_from_two_seconds_up_to_ten_minutes() -> None:
    policy = RetryPolicy(jitter=False)

    delays = [delay_after(policy, failures, 0.0) / SECOND for failures in range(1, 12)]

    assert delays == [2, 4, 8, 16, 32, 64, 128, 256, 512, 600, 600]


def test_o49_no_count_overflows_a_delay() -> None:
    policy = RetryPolicy(backoff_coefficient=1.5, maximum_interval=600, maximum_attempts=0, jitter=False)
    latest = datetime.max.replace(tzinfo=timezone.utc) - LONGEST

    for failures in (0, 1, 46, 47, 1023, 1024, 5000, 10**9, 10**30):
        delay = delay_after(policy, failures, 1.0)

        assert timedelta(0) <= delay <= timedelta(seconds=600)
        assert latest + delay <= datetime.max.replace(tzinfo=timezone.utc)


def test_o49_delays_never_shrink_without_jitter() -> None:
    policy = RetryPolicy(backoff_coefficient=1.5, maximum_interval=600, jitter=False)

    delays = [delay_after(policy, failures, 0.5) for failures in range(1, 2000)]

    assert delays == sorted(delays)
    assert delays[-1] == timedelta(seconds=600)


def test_o49_intervals_may_be_timedeltas() -> None:
    given_as_timedelta = RetryPolicy(
        initial_interval=timedelta(seconds=3), maximum_interval=timedelta(minutes=1), jitter=False
    )

    assert given_as_timedelta == RetryPolicy(initial_interval=3, maximum_interval=60, jitter=False)
    assert delay_after(given_as_timedelta, 5000, 0.0) == timedelta(minutes=1)


@given(
    first=st.floats(0, 3e8),
    cap=st.floats(0, 3e8),
    coefficient=st.floats(1, 1e300),
    failures=st.integers(0, 10**6),
    draw=st.floats(0, 1),
    jitter=st.booleans(),
)
def test_o49_every_delay_is_finite_and_within_the_cap(
    first: float, cap: float, coefficient: float, failures: int, draw: float, jitter: bool
) -> None:
    policy = RetryPolicy(
        initial_interval=first, maximum_interval=cap, backoff_coefficient=coefficient, jitter=jitter, maximum_attempts=0
    )

    delay = delay_after(policy, failures, draw)
    longer = delay_after(policy, failures + 1, draw)

    assert timedelta(0) <= delay <= longer <= timedelta(seconds=cap) + timedelta(microseconds=1)


def test_jitter_draws_from_the_upper_half() -> None:
    policy = RetryPolicy(initial_interval=10)

    assert delay_after(policy, 1, 0.0) == timedelta(seconds=5)
    assert delay_after(policy, 1, 1.0) == timedelta(seconds=10)
    assert delay_after(policy, 3, 0.5) == timedelta(seconds=30)
    assert all(timedelta(seconds=5) <= delay_after(policy, 1, random.random()) <= 10 * SECOND for _ in range(100))


def test_a_cap_below_the_first_interval_rules() -> None:
    assert delay_after(RetryPolicy(initial_interval=60, maximum_interval=5, jitter=False), 1, 0.0) == 5 * SECOND


def test_an_interval_of_zero_is_no_wait() -> None:
    assert delay_after(RetryPolicy(initial_interval=0), 7, 1.0) == timedelta(0)
    assert delay_after(RetryPolicy(maximum_interval=0), 7, 1.0) == timedelta(0)


# -- whether to try again ------------------------------------------------------------------------------------------


def test_attempts_count_the_first_one() -> None:
    policy = RetryPolicy(maximum_attempts=3)

    assert [retries(policy, failures, ["ValueError"]) for failures in (1, 2, 3, 4)] == [True, True, False, False]


def test_o50_zero_in_a_policy_means_no_limit() -> None:
    assert retries(RetryPolicy(maximum_attempts=0), 10**6, ["ValueError"])


@pytest.mark.parametrize(
    ("retry", "starts"), [(1, 1), (2, 2), (None, 1), (7, 7), (RetryPolicy(maximum_attempts=4), 4), (RetryPolicy(), 5)]
)
def test_o50_what_retry_means_in_starts(retry: Any, starts: int) -> None:
    policy = policy_of(retry)
    failures = 1
    while retries(policy, failures, ["ValueError"]):
        failures += 1

    assert failures == starts


@pytest.mark.parametrize("retry", [0, -1, True, False, "3", 3.0, [3], timedelta(1)])
def test_o50_anything_else_is_refused_naming_none_and_the_policy(retry: Any) -> None:
    with pytest.raises(BadValue) as caught:
        policy_of(retry)

    assert repr(retry) in str(caught.value)
    assert "None" in str(caught.value)
    assert "RetryPolicy" in str(caught.value)
    assert isinstance(caught.value, (UsageError, ValueError))


def types_of(error: type[BaseException]) -> list[str]:
    return [
        kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
        for kind in error.__mro__
        if issubclass(kind, BaseException)
    ]


@pytest.mark.parametrize(
    "error",
    [TypeError, NameError, UnboundLocalError, ImportError, ModuleNotFoundError, IndentationError, NotImplementedError],
)
def test_programming_errors_are_not_retried(error: type[BaseException]) -> None:
    assert not retries(RetryPolicy(), 1, types_of(error))


@pytest.mark.parametrize("error", [ValueError, OSError, AttributeError, KeyError, RuntimeError, Declined])
def test_other_errors_are_retried(error: type[BaseException]) -> None:
    assert retries(RetryPolicy(), 1, types_of(error))


@pytest.mark.parametrize(
    ("retry_on", "error", "again"),
    [
        (TypeError, TypeError, True),
        ("TypeError", TypeError, True),
        ([Exception], TypeError, True),
        ([ImportError], ModuleNotFoundError, True),
        ([ModuleNotFoundError], ImportError, False),
        ([OSError], TypeError, False),
        ([OSError], ValueError, True),
    ],
)
def test_retry_on_lets_programming_errors_be_retried(retry_on: Any, error: type[BaseException], again: bool) -> None:
    assert retries(RetryPolicy(retry_on=retry_on), 1, types_of(error)) is again


@pytest.mark.parametrize("named", [Declined, f"{__name__}.Declined", (Declined,), [f"{__name__}.Declined"]])
def test_non_retryable_counts_subclasses(named: Any) -> None:
    policy = RetryPolicy(non_retryable=named)

    assert not retries(policy, 1, types_of(Declined))
    assert not retries(policy, 1, types_of(LowFunds))
    assert retries(policy, 1, types_of(ValueError))


def test_the_nearer_class_decides_between_retry_on_and_non_retryable() -> None:
    assert not retries(RetryPolicy(retry_on=Exception, non_retryable=Declined), 1, types_of(LowFunds))
    assert retries(RetryPolicy(retry_on=LowFunds, non_retryable=Declined), 1, types_of(LowFunds))
    assert not retries(RetryPolicy(retry_on=Declined, non_retryable=Declined), 1, types_of(Declined))


# -- bad policies --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("field", "values"),
    [
        ("maximum_attempts", [-1, 1.5, True, "3", None]),
        ("backoff_coefficient", [0, 0.99, -2, math.inf, math.nan, True, "2", None]),
        ("initial_interval", [-1, math.nan, math.inf, "2", None, True, timedelta(seconds=-1), 10**400]),
        ("maximum_interval", [-1, math.nan, math.inf, "2", None, timedelta.max]),
        ("jitter", [1, None, "yes"]),
        ("non_retryable", ["NoSuchError", "print", "", 5, [5], [int], None]),
        ("retry_on", ["NoSuchError", [ValueError, "nope"], object()]),
    ],
)
def test_a_bad_policy_says_which_value_and_what_is_allowed(field: str, values: Iterable[Any]) -> None:
    for value in values:
        with pytest.raises(BadValue) as caught:
            RetryPolicy(**{field: value})

        assert f"RetryPolicy.{field}" in str(caught.value)
        assert caught.value.path == f"RetryPolicy.{field}"


def test_a_policy_is_frozen_and_equal_by_value() -> None:
    policy = RetryPolicy(non_retryable=[ValueError])

    assert policy == RetryPolicy(non_retryable=("ValueError",))
    assert hash(policy) == hash(RetryPolicy(non_retryable="ValueError"))
    with pytest.raises(AttributeError):
        policy.jitter = False  # type: ignore[misc]


def test_an_old_name_of_a_builtin_error_means_the_error() -> None:
    assert RetryPolicy(non_retryable="IOError").non_retryable == ("OSError",)


def test_a_policy_comes_back_from_its_row() -> None:
    policy = RetryPolicy(initial_interval=1.5, maximum_attempts=0, jitter=False, retry_on=(TypeError, Declined))

    assert RetryPolicy.from_data(policy.as_data()) == policy
    assert RetryPolicy.from_data({**policy.as_data(), "of_a_newer_release": 1}) == policy
    assert RetryPolicy.from_data({}) == RetryPolicy()


# -- durations -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "seconds"), [(3, 3.0), (0.5, 0.5), (timedelta(minutes=2), 120.0), (0, 0.0), (LONGEST, 315_360_000.0)]
)
def test_a_duration_is_a_timedelta_or_seconds(value: Any, seconds: float) -> None:
    assert seconds_of(value, "x") == seconds


@pytest.mark.parametrize(
    "value", [-0.001, math.nan, math.inf, -math.inf, True, "3", None, timedelta.max, 10**400, -(10**400), 315_360_001]
)
def test_any_other_duration_is_refused(value: Any) -> None:
    with pytest.raises(BadValue) as caught:
        seconds_of(value, "the wait")

    assert str(caught.value).startswith("the wait must be ")


def test_a_duration_without_a_lower_bound_is_finite_all_the_same() -> None:
    assert seconds_of(-5, "x", minimum=-math.inf) == -5.0
    for value in (-math.inf, math.nan, math.inf, -(10**400)):
        with pytest.raises(BadValue):
            seconds_of(value, "x", minimum=-math.inf)
