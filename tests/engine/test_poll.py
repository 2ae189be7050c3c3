"""Polls over the real database: when they run, what ends them, and that all of it is one row."""

from __future__ import annotations

import random
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest

from django_app.models import StepAttempt, StepResult
from durable_celery import (
    CompleteLater,
    PollTimeout,
    RetryPolicy,
    StepFailed,
    Workflow,
    WorkflowCancelled,
    WorkflowFailed,
    complete_step,
    current_step,
    gather,
    poll,
    step,
    workflow,
)
from tests.pump import BEGIN, Pump, counted

pytestmark = pytest.mark.django_db(transaction=True)

answers: list[Any] = []  # what the step says next; an exception is raised
ran_at: list[float] = []  # seconds since the beginning
keys: set[str] = set()
clocks: list[Pump] = []


@pytest.fixture(autouse=True)
def clean(pump: Pump) -> None:
    for kept in (answers, ran_at, keys, clocks):
        kept.clear()
    clocks.append(pump)


@step(retry=RetryPolicy(maximum_attempts=2, initial_interval=3, jitter=False), start_to_close_timeout=20)
def status(order: str) -> Any:
    ran_at.append((clocks[0].now - BEGIN).total_seconds())
    keys.add(current_step().idempotency_key)
    answer = answers.pop(0) if answers else "no"
    if isinstance(answer, BaseException):
        raise answer
    return answer


@workflow
def waits_for_it(every: float = 60, timeout: float | None = None) -> Workflow[Any]:
    return (yield from poll(status("o-1"), until=lambda answer: answer == "yes", every=every, timeout=timeout))


@workflow
def catches() -> Workflow[Any]:
    try:
        return (yield from poll(status("o-1"), until=lambda answer: answer == "yes", every=40, timeout=100))
    except PollTimeout as error:
        return ["timed out", error.position, str(error)]
    except StepFailed as error:
        return ["failed", error.position, error.error_type]


def row(handle: Any) -> StepResult:
    (found,) = StepResult.objects.filter(instance_id=handle.id)
    return found


def test_it_runs_at_once_and_then_every_so_often_in_one_row(pump: Pump) -> None:
    answers.extend(["no", "no", "yes"])
    handle = waits_for_it.start()
    pump.finish()

    assert handle.result(timeout=0) == "yes"
    assert ran_at == [0, 60, 120]
    assert len(keys) == 1
    assert (row(handle).kind, row(handle).state, row(handle).attempt) == ("poll", "SUCCEEDED", 3)
    assert row(handle).look_at is None
    (entry,) = handle.history()
    assert (entry.name, entry.result, entry.attempts) == (status.name, "yes", 3)


def test_a_short_interval_does_not_wait_for_the_tick(pump: Pump) -> None:
    answers.extend(["no", "no", "yes"])
    handle = waits_for_it.start(0.5)
    pump.drain()
    assert [hint.due_at - pump.now for hint in pump.queue] == [timedelta(seconds=0.5)]
    pump.finish()
    assert handle.result(timeout=0) == "yes"
    assert ran_at == [0, 0.5, 1]


def test_waiting_for_tells_how_it_stands(pump: Pump, admin_client: Any) -> None:
    answers.extend(["no", ValueError("busy")])
    handle = waits_for_it.start(60, 3600)
    pump.drain()
    name = f"poll of step {status.name} at 1, since 2026-11-29 12:00:00 UTC, until 2026-11-29 13:00:00 UTC"
    told = "the result of start 1 is not what it waits for, the next at 2026-11-29 12:01:00 UTC"
    assert handle.waiting_for == f"{name}: {told}"
    page = admin_client.get(f"/admin/durable_celery/workflowinstance/{handle.id}/change/")
    assert page.status_code == 200
    assert "poll" in page.content.decode()
    assert "start 1" in page.content.decode()
    pump.advance_time(60)
    assert handle.waiting_for == f"{name}: start 2 ended in ValueError: busy, the next at 2026-11-29 12:01:03 UTC"
    assert handle.status == "WAITING"


def test_its_time_out_raises_poll_timeout(pump: Pump) -> None:
    handle = catches.start()
    pump.finish()

    text = f"poll of step {status.name} at 1: no result was liked within 100 s, 3 starts"
    assert handle.result(timeout=0) == ["timed out", "1", text]
    assert ran_at == [0, 40, 80]
    assert row(handle).state == "FAILED"


def test_the_retries_of_each_run_are_its_own(pump: Pump) -> None:
    no_luck = ValueError("no luck")
    answers.extend([no_luck, "no", no_luck, "no", no_luck, "yes"])
    handle = waits_for_it.start()
    pump.finish()

    assert handle.result(timeout=0) == "yes"
    assert ran_at == [0, 3, 63, 66, 126, 129]
    assert StepAttempt.objects.filter(step__instance_id=handle.id).count() == 3


def test_a_run_that_fails_for_good_is_the_end(pump: Pump) -> None:
    answers.extend(["no", ValueError("a"), ValueError("b")])
    handle = catches.start()
    pump.finish()
    assert handle.result(timeout=0) == ["failed", "1", "ValueError"]
    assert ran_at == [0, 40, 43]


def test_a_retry_that_would_be_too_late_waits_for_the_time_out(pump: Pump) -> None:
    answers.extend(["no", "no", RuntimeError("x")])
    pump.advance_time(0)

    @workflow(name="tests.poll.late")
    def late() -> Workflow[Any]:
        try:
            yield from poll(status("o-1"), until=bool, every=5, timeout=11)
        except PollTimeout as error:
            return str(error)

    answers[:] = ["", "", RuntimeError("x")]
    handle = late.start()
    pump.finish()
    assert handle.result(timeout=0).endswith("no result was liked within 11 s, 3 starts")


def test_a_cancel_between_two_runs_ends_it_at_once(pump: Pump) -> None:
    handle = waits_for_it.start()
    pump.drain()
    assert handle.cancel() == "requested"
    pump.drain()
    with pytest.raises(WorkflowCancelled):
        handle.result(timeout=0)
    assert (row(handle).state, ran_at) == ("CANCELLED", [0])


def test_retry_begins_its_time_anew(pump: Pump) -> None:
    handle = waits_for_it.start(40, 100)
    pump.finish()
    with pytest.raises(WorkflowFailed):
        handle.result(timeout=0)
    pump.advance_time(1000)
    handle.retry()
    again = row(handle)
    assert (again.state, again.end_by_at) == ("SCHEDULED", pump.now + timedelta(seconds=100))
    answers.extend(["no", "yes"])
    pump.finish()
    assert handle.result(timeout=0) == "yes"


def test_what_is_completed_from_outside_is_looked_at_too(pump: Pump) -> None:
    tokens: list[str] = []

    @step(name="tests.poll.outside")
    def outside() -> str:
        tokens.append(current_step().token)
        raise CompleteLater

    @workflow(name="tests.poll.outside_body")
    def asks_outside() -> Workflow[Any]:
        return (yield from poll(outside(), until=lambda answer: answer == "yes", every=30))

    handle = asks_outside.start()
    pump.drain()
    complete_step(tokens[0], "no")
    pump.advance_time(30)
    assert len(tokens) == 2
    complete_step(tokens[1], "yes")
    pump.finish()
    assert handle.result(timeout=0) == "yes"


@pytest.mark.parametrize(
    "point", ["turn.before_commit", "turn.in_transaction", "turn.after_commit", "record.before", "record.after"]
)
@pytest.mark.parametrize("nth", [1, 2, 3])
def test_a_kill_anywhere_changes_nothing(pump: Pump, point: str, nth: int) -> None:
    pump.kill_at(point, nth)
    handle = waits_for_it.start(30, 3600)
    pump.advance_time(5)
    pump.advance_time(60)
    answers.extend(["yes"] * 3)
    pump.finish()

    assert handle.result(timeout=0) == "yes"
    assert row(handle).state == "SUCCEEDED"


@pytest.mark.parametrize("seed", range(5))
def test_doubled_late_and_reordered_messages_run_nothing_twice(pump: Pump, seed: int) -> None:
    dice = random.Random(seed)
    pump.fate = lambda hint: [dice.choice([0, 0, 1, 3]) for _ in range(dice.choice([0, 1, 2, 3]))]
    pump.choose = lambda ready: dice.randrange(len(ready))
    answers.extend(["no", "no", "no", "yes"])
    handle = waits_for_it.start(10)
    pump.finish()

    assert handle.result(timeout=0) == "yes"
    assert len(ran_at) == 4
    assert all(later - earlier >= 10 for earlier, later in pairwise(ran_at))


def test_many_polls_side_by_side(pump: Pump) -> None:
    @step(name="tests.poll.counts")
    def counts(number: int) -> int:
        seen[number] = seen.get(number, 0) + 1
        return seen[number]

    @workflow(name="tests.poll.many")
    def many() -> Workflow[Any]:
        return (yield from gather(*[poll(counts(n), until=lambda got, n=n: got > n, every=20) for n in range(4)]))

    seen: dict[int, int] = {}
    handle = many.start()
    pump.finish()
    assert handle.result(timeout=0) == (1, 2, 3, 4)


def test_a_look_takes_the_same_statements_the_hundredth_time(pump: Pump) -> None:
    handle = waits_for_it.start(10)
    pump.drain()

    def spent() -> int:
        with counted() as sent:
            pump.advance_time(10)
        return len(sent)

    pump.advance_time(10)
    early = spent()
    for _ in range(20):
        pump.advance_time(10)
    assert spent() == early
    assert StepResult.objects.filter(instance_id=handle.id).count() == 1
