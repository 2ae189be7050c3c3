"""A turn that never ends is stopped by its budget, whatever its body does about it; nobody else notices."""

from __future__ import annotations

import contextvars
import sys
import threading
import time
from datetime import timedelta
from functools import partial
from typing import Any
from uuid import uuid4

import pytest

from durable_celery import Workflow, step, workflow
from durable_celery.core import transitions as t
from durable_celery.core.scope import active
from durable_celery.engine import budget
from durable_celery.engine.budget import TurnTimedOut
from tests.pump import Pump, release

MET: list[str] = []
seen: contextvars.ContextVar[str] = contextvars.ContextVar("seen", default="outside")


@step(name="budget.work")
def work(number: int) -> int:
    return number + 1


@workflow(name="budget.fine")
def fine(number: int) -> Workflow[int]:
    return (yield from work(number))


def loops() -> Workflow[None]:
    yield from work(1)
    while True:
        pass


def blocks() -> Workflow[None]:
    yield from work(1)
    for _ in range(1000):
        time.sleep(0.05)


def swallows() -> Workflow[None]:
    yield from work(1)
    while True:
        try:
            time.sleep(0.01)
        except:  # noqa: E722
            pass


def swallows_twice() -> Workflow[None]:
    yield from work(1)
    while True:
        try:
            try:
                time.sleep(0.01)
            except:  # noqa: E722
                pass
        except BaseException:  # noqa: BLE001
            pass


def swallows_and_returns() -> Workflow[str]:
    yield from work(1)
    try:
        while True:
            pass
    except BaseException:  # noqa: BLE001
        return "as if nothing had been"


def swallows_and_yields() -> Workflow[str]:
    yield from work(1)
    try:
        while True:
            pass
    except BaseException:  # noqa: BLE001
        yield from work(2)
    return "on and on"


def hides() -> Workflow[str]:
    try:
        while True:
            pass
    except BaseException as error:
        raise ValueError("something else") from error
    yield from work(1)


def loops_in_finally() -> Workflow[None]:
    try:
        yield from work(1)
    finally:
        while True:
            pass


def plain() -> None:
    while True:
        pass


@pytest.fixture
def quick() -> Any:
    with Pump(turn_timeout=timedelta(seconds=0.2)) as pump:
        yield pump


BODIES = [loops, blocks, swallows, swallows_twice, swallows_and_returns, swallows_and_yields, hides, loops_in_finally,
          plain]  # fmt: skip


@pytest.mark.parametrize("body", BODIES, ids=lambda body: body.__name__)
def test_a_turn_that_never_ends_blocks_its_instance_and_no_other(transactional_db: None, quick: Pump, body: Any):
    line = body.__code__.co_firstlineno
    handle = release(f"budget.{body.__name__}", body).start()
    other = fine.start(1)
    tracer = sys.gettrace()
    quick.drain()
    assert handle.status == t.BLOCKED
    assert "the turn took longer than TURN_TIMEOUT of 0.2 s at" in handle.waiting_for
    shown = int(handle.waiting_for.partition(", line ")[2].partition(" of ")[0])
    assert line < shown <= line + 12, handle.waiting_for
    assert "line " in handle.waiting_for
    assert "test_budget.py" in handle.waiting_for
    assert other.result(timeout=1) == 2
    assert fine.start(5)  # this thread lives on, is in no body, and traces nothing
    quick.drain()
    assert active() is None
    assert sys.gettrace() is tracer


def test_a_repaired_body_goes_on_where_the_endless_one_stood(transactional_db: None, quick: Pump):
    handle = release("budget.repaired", loops).start()
    quick.drain()
    assert handle.status == t.BLOCKED
    assert [entry.position for entry in handle.history()] == ["1"]

    def repaired() -> Workflow[int]:
        return (yield from work(1))

    release("budget.repaired", repaired)
    quick.advance_time(5)
    assert handle.result(timeout=1) == 2
    assert [hint.name for hint in quick.sent].count("budget.work") == 1


def test_only_the_thread_whose_time_is_up_is_hit():
    struck: list[str] = []

    def long() -> None:
        try:
            budget.run(lambda: time.sleep(0.5), 5)
        except BaseException as error:  # noqa: BLE001
            struck.append(repr(error))

    others = [threading.Thread(target=long) for _ in range(3)]
    for other in others:
        other.start()
    with pytest.raises(TurnTimedOut):
        budget.run(spin, 0.1)
    for other in others:
        other.join()
    assert struck == []


def test_what_ends_in_time_is_not_hit_afterwards():
    for number in range(200):
        try:
            assert budget.run(partial(spin, 0.002 + number * 0.00001), 0.003) is True
        except TurnTimedOut:
            continue
    assert [active() for _ in range(1000)] == [None] * 1000
    assert sys.gettrace() is None or "thrower" not in repr(sys.gettrace())


def test_an_error_that_struck_leaves_no_context_variable_behind():
    def lost() -> None:
        seen.set("inside")
        spin()

    with pytest.raises(TurnTimedOut):
        budget.run(lost, 0.05)
    assert seen.get() == "outside"


def test_a_process_that_stood_still_is_given_its_time_again(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(budget, "LATE", -1.0)  # every waking is too late
    assert budget.run(partial(spin, 0.15), 0.1) is True


def test_the_process_may_be_ended_while_a_body_runs_and_not_after():
    told: list[tuple[float, Any]] = []
    instance_id = uuid4()
    with budget.watched_by(lambda at, instance: told.append((at, instance))):
        begun = time.monotonic()
        assert budget.run(lambda: list(told), 2.0, instance_id) == told[:1]
    assert told[0][0] - begun >= 2.0 + budget.GRACE
    assert told[0][1] == instance_id
    assert told[1:] == [(0.0, None)]
    assert budget.run(lambda: 1, 2.0) == 1
    assert len(told) == 2


def test_one_thread_watches_all_turns_and_costs_little():
    budget.run(lambda: None, 10.0)
    before = threading.active_count()
    begun = time.perf_counter()
    for _ in range(10_000):
        budget.run(lambda: None, 10.0)
    each = (time.perf_counter() - begun) / 10_000
    print(f"a budget costs {each * 1e6:.2f} µs a turn")
    assert threading.active_count() == before
    assert each < 0.001


def spin(seconds: float = 60.0) -> bool:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        pass
    return True
