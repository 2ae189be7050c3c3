"""Existing tasks: back-off, limits, countdowns, and what is refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest
from celery import chain, chord
from celery.exceptions import SoftTimeLimitExceeded

from django_app.models import StepAttempt, StepResult
from durable_celery import UsageError, run
from tests.celery import existing as t
from tests.celery.existing_parts import seen
from tests.celery.existing_runs import (
    durable_fixture,  # noqa: F401
    worker_app_fixture,  # noqa: F401
)
from tests.pump import Pump

# -- time --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("task", "seconds"),
    [(t.backs_off, [2, 4, 8]), (t.backs_off_to_a_limit, [5, 7, 7])],
    ids=["retry_backoff", "retry_backoff_max"],
)
def test_a_back_off_is_the_tasks_own_and_its_waits_are_rows(task: Any, seconds: list[int], pump: Pump) -> None:
    seen.clear()
    handle = run(task.s())
    for number, wait in enumerate(seconds, 1):
        pump.drain()
        row = StepResult.objects.get()
        assert (row.state, row.failures, len(seen)) == ("RETRYING", number, number)
        assert row.due_at == pump.now + timedelta(seconds=wait)
        pump.advance_time(wait)
    assert handle.status == "FAILED"
    assert StepAttempt.objects.count() == 4


def test_jitter_is_celerys(pump: Pump, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn_from: list[int] = []

    def draw(most: int) -> int:
        drawn_from.append(most)
        return 20

    monkeypatch.setattr("celery.utils.time.random.randrange", draw)
    handle = run(t.backs_off_by_dice.s())
    pump.drain()
    assert StepResult.objects.get().due_at == pump.now + timedelta(seconds=20)
    assert drawn_from == [61]
    pump.advance_time(20)
    assert handle.status == "FAILED"


class Strict:
    """A guard that interrupts each body that has a soft limit, where `existing.interrupt` is called."""

    own_process = False

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.fired = False
        self.limited: list[tuple[float | None, float | None]] = []
        self._monkeypatch = monkeypatch

    def limit(self, seconds: float | None, token: str) -> Any:
        raise AssertionError("an existing task has two limits")

    @contextmanager
    def limits(self, soft: float | None, hard: float | None, token: str) -> Iterator[None]:
        self.limited.append((soft, hard))
        self.fired = False
        self._monkeypatch.setattr(t, "interrupt", self._strike)
        yield

    def _strike(self) -> None:
        self.fired = True
        raise SoftTimeLimitExceeded


def test_a_soft_time_limit_is_the_tasks_to_catch(pump: Pump, durable: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    pump.guard = guard = Strict(monkeypatch)
    assert durable(lambda: t.slow.s(careful=True)).outcome == ("value", "tidied up")
    assert guard.limited == [(3, 9)]


def test_a_soft_time_limit_that_is_not_caught_is_a_time_out(
    pump: Pump, durable: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    pump.guard = Strict(monkeypatch)
    assert durable(lambda: t.slow.s(careful=False)).outcome == ("error", "SoftTimeLimitExceeded")
    row = StepResult.objects.get()
    assert row.unknown_end
    assert '"timed_out": true' in (row.failure or "")


def test_a_soft_time_limit_is_retried_where_the_task_says_so(
    pump: Pump, durable: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    pump.guard = Strict(monkeypatch)
    got = durable(t.slow_and_retried.s)
    assert got.outcome == ("error", "SoftTimeLimitExceeded")
    assert got.seen == [("ran", "slow_and_retried")] * 2


def test_limits_in_the_signature_hold_instead_of_the_tasks(
    pump: Pump, durable: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    pump.guard = guard = Strict(monkeypatch)
    durable(lambda: t.slow.s(careful=True).set(soft_time_limit=1, time_limit=2))
    assert guard.limited == [(1, 2)]


def test_a_hard_time_limit_ends_the_step_for_good(pump: Pump) -> None:
    def linger() -> None:
        pump.advance_time(10)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(t, "interrupt", linger)
        handle = run(t.slow.s(careful=True))
        pump.finish()
    assert handle.status == "FAILED"
    assert StepResult.objects.get().attempt == 1
    assert "TimeoutError" in str(handle.history()[0].error)


def test_a_countdown_is_a_row_of_its_own_and_passes_in_no_time(pump: Pump) -> None:
    seen.clear()
    handle = run(t.add.s(1, 2).set(countdown=3600))
    pump.drain()
    assert [(one.position, one.kind) for one in handle.history()] == [("1", "chain"), ("1.0", "timer")]
    assert seen == []
    pump.advance_time(3600)
    assert handle.result(timeout=0) == 3


def test_what_expires_in_the_queue_never_runs(pump: Pump) -> None:
    seen.clear()
    pump.fate = lambda hint: () if hint.step else (0.0,)
    handle = run(t.add.s(1, 2).set(expires=60))
    pump.drain()
    pump.fate = lambda hint: (0.0,)
    pump.now += timedelta(seconds=61)
    pump.tick()
    pump.drain()
    assert handle.status == "FAILED"
    assert seen == []


# -- what is refused, and what to use instead --------------------------------------------------------------------------


REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "link": (lambda: t.add.s(1, 2).set(link=t.echo.s()), "yield the callback next"),
    "link_error": (lambda: t.add.s(1, 2).set(link_error=t.echo.s()), "try/except StepFailed"),
    "a link within a chain": (lambda: chain(t.add.s(1, 2), t.add.s(3).set(link=t.echo.s())), "yield the callback next"),
    "a fixed task id": (lambda: t.add.s(1, 2).set(task_id="mine"), "self.request.id"),
    "a stamp": (lambda: stamped(t.add.s(1, 2)), "headers="),
    "a routing key": (lambda: t.add.s(1, 2).set(routing_key="there"), "task_routes"),
    "an unknown option": (lambda: t.add.s(1, 2).set(colour="red"), "which a workflow does not know"),
    "a rate limit": (lambda: t.limited.s(), "@step(rate_limit=...)"),
    "a chord without a body": (lambda: chord([t.add.s(1, 2)]), "has no body"),
    "something else": (lambda: {"a": 1}, "takes a Celery signature"),
}


def stamped(sig: Any) -> Any:
    sig.stamp(colour="red")
    return sig


@pytest.mark.parametrize("what", REFUSED)
def test_what_has_no_durable_form_is_refused_before_anything_runs(what: str, pump: Pump) -> None:
    make, instead = REFUSED[what]
    with pytest.raises(UsageError) as refused:
        run(make())
    assert instead in str(refused.value)
    assert not StepResult.objects.exists()


def test_replace_is_refused_whatever_is_retried(durable: Any) -> None:
    got = durable(t.replaces_itself.s)
    assert got.outcome == ("error", "UsageError")
    assert got.seen == [("ran", "replaces_itself")]
    assert "yield other.s(...)" in (StepResult.objects.get().failure or "")


def test_a_result_that_cannot_be_kept_is_a_failure_to_all_who_watch(durable: Any) -> None:
    got = durable(t.unkeepable.s)
    assert got.outcome == ("error", "NotSerializable")
    assert [name for name, _ in got.signals] == ["task_prerun", "task_failure", "task_postrun"]


def test_a_task_that_returns_a_task_it_started_is_told_to_yield_it(durable: Any, worker_app: Any) -> None:
    got = durable(t.starts_another.s)
    assert got.outcome == ("error", "NotSerializable")
    assert "yield that task in the workflow instead" in (StepResult.objects.get().failure or "")
