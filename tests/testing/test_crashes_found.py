"""Bugs planted in the engine, in a step and in a body: ``crash_everywhere`` finds each of them."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest

from django_app.models import StepResult
from django_app.store import DjangoStore
from durable_celery import RetryPolicy, Workflow, gather, step, sweeps, workflow
from durable_celery.engine import atomic, execution
from durable_celery.testing import Harness, crashing
from tests.project.testapp.models import Effect

pytestmark = pytest.mark.django_db
ticks: list[str] = []
clock: list[Callable[[], float]] = []
QUICK = RetryPolicy(maximum_attempts=3, initial_interval=1)
sqlite = pytest.mark.on("sqlite", "memory")  # killed processes work on copies of SQLite files


@step(name="found.write", retry=QUICK)
def write(what: str) -> str:
    return what


@step(name="found.keep", atomic=True, retry=QUICK)
def keep(what: str) -> str:
    Effect.objects.create(run="found", what=what)
    return what


@workflow(name="found.one")
def one() -> Workflow[str]:
    return (yield from keep("one"))


@workflow(name="found.two")
def two() -> Workflow[tuple[str, str]]:
    return (yield from gather(write("one"), write("two")))


@workflow(name="found.hasty")
def hasty() -> Workflow[str]:
    """Asks the clock, and not the engine for the time of its turn."""
    yield from write("plain")
    return (yield from write(f"plain at {clock[0]()}"))


@workflow(name="found.outside")
def outside() -> Workflow[None]:
    """Does something itself that a step should do."""
    yield from write("plain")
    ticks.append("sent")


def kept() -> list[str]:
    return list(Effect.objects.values_list("what", flat=True))


def counted() -> int:
    number = len(ticks)
    ticks.clear()
    return number


def found(durable: Harness, flow: Any, **terms: Any) -> str:
    """What is said of one crash at each kind of point."""
    with pytest.raises(AssertionError, match="crash_everywhere: a crash has changed what happens") as caught:
        durable.crash_everywhere(flow, sample=1, **terms)
    text = str(caught.value)
    assert re.search(r": \d+ points, \d+ runs, \d+ different", text)
    return text


def stay_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing comes of some runs; few hops tell so."""
    monkeypatch.setattr(crashing, "HOPS", 20)


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("real", [False, pytest.param(True, marks=sqlite)])
def test_a_step_that_says_it_is_atomic_and_is_not(
    durable: Harness, monkeypatch: pytest.MonkeyPatch, real: bool
) -> None:
    """Its effect is committed by itself, before the result."""
    monkeypatch.setattr(DjangoStore, "_same", lambda store, step: store.rows(StepResult).filter(pk=step.id))
    monkeypatch.setattr(atomic, "transact", lambda rt, claimed, guard: atomic.Transacted(
        outcome=execution.execute(rt, claimed, guard)
    ))  # fmt: skip
    text = found(durable, one, effects=kept, real=real)
    assert "after a crash at body.after, time 1 (step found.keep):" in text
    assert "effects() returned ['one', 'one'], and straight ['one']" in text


def test_a_publish_that_is_not_sent_again(durable: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweeps, "_judge", lambda *given: None)
    monkeypatch.setattr(sweeps, "_wake", lambda *given: None)
    stay_bound(monkeypatch)
    text = found(durable, one)
    assert "after a crash at start.after_commit, time 1:\n    found.one ended PENDING" in text


def test_a_turn_that_is_no_transaction(durable: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DjangoStore, "atomic", lambda store: nullcontext())
    stay_bound(monkeypatch)
    assert "after a crash at turn.swapped, time" in found(durable, two)


@pytest.mark.durable(check=False)
def test_a_body_that_reads_the_clock(durable: Harness) -> None:
    clock[:] = [lambda: durable.now.timestamp()]
    text = found(durable, hasty)
    assert "found.hasty ended COMPLETED with" in text
    assert "after a crash at turn.after_commit" not in text


@pytest.mark.durable(check=False)
def test_an_effect_outside_of_a_step(durable: Harness) -> None:
    ticks.clear()
    assert "effects() returned 2, and straight 1" in found(durable, outside, effects=counted)
