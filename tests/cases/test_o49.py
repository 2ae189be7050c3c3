"""O-49: a back-off never overflows, however often it was taken."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from durable_celery import RetryPolicy, Workflow, step, workflow
from durable_celery.core.retry import delay_after
from tests.pump import Pump

COUNTS = (0, 1, 46, 47, 1023, 1024, 5000)
LATEST = datetime.max.replace(tzinfo=timezone.utc)


@pytest.mark.parametrize("failures", COUNTS)
@pytest.mark.parametrize("first", [1.5, timedelta(seconds=1.5)])
@pytest.mark.parametrize("draw", [None, 0.0, 0.5, 1.0])
@pytest.mark.parametrize("coefficient", [1.0, 2.0, 1e300])
def test_o49_a_delay_is_finite_and_never_over_its_maximum(
    failures: int, first: float | timedelta, draw: float | None, coefficient: float
) -> None:
    policy = RetryPolicy(
        initial_interval=first, maximum_interval=600, maximum_attempts=0, jitter=draw is not None,
        backoff_coefficient=coefficient,
    )  # fmt: skip
    delay = delay_after(policy, failures, draw or 0.0)
    assert timedelta(0) <= delay <= timedelta(seconds=600)


@pytest.mark.parametrize("maximum", [600, timedelta(days=3650)])
def test_o49_a_due_time_is_never_beyond_what_a_datetime_holds(maximum: float | timedelta) -> None:
    policy = RetryPolicy(initial_interval=1.5, maximum_interval=maximum, jitter=False)
    near_the_end = LATEST - timedelta(days=3651)
    for failures in COUNTS:
        assert near_the_end + delay_after(policy, failures, 1.0) < LATEST


@given(
    first=st.floats(0, 1000), coefficient=st.floats(1, 1e6), maximum=st.floats(0, 1e6), failures=st.integers(1, 10_000)
)
def test_o49_without_jitter_delays_grow_up_to_the_maximum(
    first: float, coefficient: float, maximum: float, failures: int
) -> None:
    policy = RetryPolicy(
        initial_interval=first, backoff_coefficient=coefficient, maximum_interval=maximum, jitter=False
    )
    here, next_ = delay_after(policy, failures, 0.0), delay_after(policy, failures + 1, 0.0)
    assert timedelta(0) <= here <= next_ + timedelta(microseconds=1)
    assert next_ <= timedelta(seconds=maximum) + timedelta(microseconds=1)


@given(draw=st.floats(0, 1), failures=st.integers(0, 6000))
def test_o49_jitter_draws_from_half_to_whole(draw: float, failures: int) -> None:
    whole = delay_after(RetryPolicy(initial_interval=1.5, jitter=False), failures, draw)
    drawn = delay_after(RetryPolicy(initial_interval=1.5, jitter=True), failures, draw)
    assert whole / 2 - timedelta(microseconds=1) <= drawn <= whole


@step(
    retry=RetryPolicy(maximum_attempts=0, initial_interval=1.5, maximum_interval=600), schedule_to_close_timeout=86400
)
def hopeless() -> None:
    raise RuntimeError("never")


@workflow
def hoping() -> Workflow[None]:
    yield from hopeless()


def test_o49_a_step_without_a_limit_of_attempts_goes_on_at_its_maximum(pump: Pump) -> None:
    from django_app.models import StepResult

    handle = hoping.start()
    pump.drain()
    StepResult.objects.filter(instance_id=handle.id).update(failures=5000)
    pump.advance_time(hours=2)
    row = StepResult.objects.get(instance_id=handle.id)
    assert row.state == "RETRYING"
    assert row.failures > 5005
    assert pump.now < row.due_at <= pump.now + timedelta(seconds=600)
