"""Secrets of arguments do not come to a log, nor to what Celery is told of an attempt."""

from __future__ import annotations

import logging
import pickle
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from celery import current_app, shared_task, signals
from celery.app.trace import build_tracer

from durable_celery import RetryPolicy, Saga, Workflow, step, workflow
from durable_celery.celery.transport import HEADER
from tests.pump import Hint, Pump

pytestmark = [pytest.mark.engine, pytest.mark.django_db(transaction=True)]

SECRET = "hunter2-marker"
ONCE = RetryPolicy(maximum_attempts=2, jitter=False)


class Declined(Exception):
    def __init__(self, card: str, code: int) -> None:
        super().__init__(card, code)
        self.card = card
        self.code = code

    def __str__(self) -> str:
        return f"card {self.card}: {self.code}"


class Closed(Exception):
    """Cannot be made without its fields, and says more than its arguments do."""

    __slots__ = ("said",)

    def __init__(self, *, said: str) -> None:
        self.said = said

    def __str__(self) -> str:
        return self.said


@dataclass
class Account:
    name: str
    api_key: str


@step(name="tests.secrecy.charge", retry=ONCE, redact=("card",))
def charge(card: str) -> str:
    try:
        raise KeyError(card)
    except KeyError as error:
        raise Declined(card, 7) from error


@step(name="tests.secrecy.close", retry=None, redact=("card",))
def close(card: str) -> str:
    raise Closed(said=f"closed {card}")


@step(name="tests.secrecy.hand_on", retry=None)
def hand_on(value: str) -> None:
    raise ValueError(f"got {value}")


@step(name="tests.secrecy.issue", redact=("card",))
def issue(card: str) -> str:
    return f"receipt of {card}"


@step(name="tests.secrecy.account")
def account(name: str) -> dict[str, Any]:
    return {"name": name, "api_key": SECRET, "owner": Account(name, SECRET)}


@step(name="tests.secrecy.echo")
def echo(value: str) -> str:
    return value


@step(name="tests.secrecy.plain", retry=None)
def plain(order: int, note: str) -> str:
    if note == "fail":
        raise LookupError(f"order {order}: {note}")
    return f"order {order}: {note}"


@workflow(name="tests.secrecy.wf", redact=("secret",))
def wf(which: str, secret: str) -> Workflow[Any]:
    steps: dict[str, Any] = {
        "charge": charge, "close": close, "hand_on": hand_on, "issue": issue, "account": account, "echo": echo
    }  # fmt: skip
    return (yield from steps[which](secret if which != "account" else "ana"))


@workflow(name="tests.secrecy.open")
def open_one(which: str, order: int) -> Workflow[Any]:
    return (yield from plain(order, which))


@workflow(name="tests.secrecy.bug", redact=("secret",), expected=60)
def bug(secret: str) -> Workflow[None]:
    raise KeyError(secret)
    yield


@workflow(name="tests.secrecy.undo", redact=("secret",))
def undo(secret: str) -> Workflow[None]:
    saga = Saga()
    saga.add(hand_on(secret))
    yield from saga.compensate()


@workflow(name="tests.secrecy.keyed", key=lambda secret: {}[secret], redact=("secret",))
def keyed(secret: str) -> Workflow[None]:
    return
    yield


@shared_task(name="tests.secrecy.existing")
def existing(order: int, password: str) -> str:
    if order == 1:
        raise Declined(password, order)
    return f"{order} {password}"


@workflow(name="tests.secrecy.tasks", redact=("secret",))
def tasks(order: int, secret: str) -> Workflow[Any]:
    return (yield existing.s(order, password=secret))


@pytest.fixture(name="traced")
def traced_fixture(pump: Pump, caplog: pytest.LogCaptureFixture) -> Iterator[Callable[[Any], str]]:
    """Runs an instance, its steps through Celery's own tracer; all that was logged, sent and returned, as text."""
    told: list[str] = []
    names = ("task_success", "task_retry", "task_failure", "task_postrun")

    def note(**given: Any) -> None:
        kept = ("result", "reason", "exception", "einfo", "retval")
        told.append(" ".join(f"{name}={given[name]}={given[name]!r}" for name in kept if name in given))

    def run(handle: Any) -> str:
        while pump.queue or pump.next_due() is not None:
            if not pump.ready():
                pump.now = max(pump.now, pump.next_due() or pump.now)
                pump.tick()
                continue
            hint = pump.ready()[0]
            if hint.step is None:
                pump.deliver(hint)
                continue
            pump.queue.remove(hint)
            told.append(str(trace(hint)))
        text = "\n".join([*(f"{record.getMessage()} {record.__dict__}" for record in caplog.records), *told])
        return text + caplog.text

    for name in names:
        getattr(signals, name).connect(note)
    with caplog.at_level(logging.DEBUG):
        yield run
    for name in names:
        getattr(signals, name).disconnect(note)


def trace(hint: Hint) -> Any:
    app: Any = current_app
    request = {HEADER: {"step": hint.step, "task": hint.task}, "id": str(uuid4()), "delivery_info": {}}
    if hint.task:
        done = app.tasks["durable_celery.run_task"].__trace__(str(uuid4()), (), {}, request)
        assert "marker" not in f"{done.retval if done.info else done.retstr}"  # what goes to the main process
        return done
    done = build_tracer(hint.name, app.tasks[hint.name], app=app)(str(uuid4()), [], {}, request)
    pickle.loads(pickle.dumps(getattr(done.retval, "exception", None)))
    return done


@pytest.mark.parametrize(
    ("which", "kept"),
    [
        ("charge", "Declined('[redacted]', 7)"),
        ("close", "closed [redacted]"),
        ("hand_on", "got [redacted]"),
    ],
)
def test_the_error_of_a_step_is_logged_without_the_secret(traced: Any, which: str, kept: str) -> None:
    handle = wf.start(which, SECRET)
    text = traced(handle)
    assert handle.status == "FAILED"
    assert kept in text
    assert "marker" not in text


def test_an_error_keeps_its_class_its_fields_and_where_it_arose(traced: Any) -> None:
    found: list[Any] = []

    def note(**given: Any) -> None:
        found.append(given["exception"])

    signals.task_failure.connect(note)
    try:
        text = traced(wf.start("charge", SECRET))
    finally:
        signals.task_failure.disconnect(note)
    (error,) = found
    assert isinstance(error, Declined)
    assert (error.card, error.code) == ("[redacted]", 7)
    assert "raise Declined(card, 7)" in text
    assert "raise KeyError(card)" in text


@pytest.mark.parametrize("which", ["issue", "account", "echo"])
def test_a_return_value_is_not_logged_with_a_secret(traced: Any, which: str) -> None:
    handle = wf.start(which, SECRET)
    text = traced(handle)
    assert handle.status == "COMPLETED"
    assert SECRET in str(handle.result(timeout=0))
    assert "succeeded in" in text
    assert "marker" not in text


def test_what_is_no_secret_is_told_as_it_is(traced: Any) -> None:
    text = traced(open_one.start("fine", 4711)) + traced(open_one.start("fail", 4712))
    assert "order 4711: fine" in text
    assert "LookupError('order 4712: fail')" in text
    assert "[redacted]" not in text


@pytest.mark.parametrize("order", [1, 2])
def test_an_existing_task_is_logged_without_the_secret(
    traced: Any, caplog: pytest.LogCaptureFixture, order: int
) -> None:
    handle = tasks.start(order, SECRET)
    traced(handle)
    text = caplog.text + str([record.__dict__ for record in caplog.records])
    assert handle.status == ("FAILED" if order == 1 else "COMPLETED")
    assert f"Task {existing.name}" in text
    assert "marker" not in text


def test_the_log_of_a_blocked_instance_and_of_a_stuck_one_are_without_the_secret(
    pump: Pump, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG):
        handle = bug.start(SECRET)
        pump.drain()
        assert handle.status == "BLOCKED"
        pump.now += timedelta(seconds=120)
        pump.tick()
    assert "is BLOCKED: blocked: KeyError: '[redacted]'" in caplog.text
    assert "is stuck since" in caplog.text
    assert "marker" not in caplog.text


def test_the_log_of_a_compensation_that_failed_is_without_the_secret(traced: Any) -> None:
    handle = undo.start(SECRET)
    text = traced(handle)
    assert handle.status == "COMPLETED"
    assert "a compensation failed" in text
    assert "marker" not in text


def test_a_start_by_message_that_is_refused_is_logged_without_the_secret(
    pump: Pump, caplog: pytest.LogCaptureFixture
) -> None:
    app: Any = current_app
    with caplog.at_level(logging.DEBUG):
        calls: list[Any] = [([SECRET], {}), ([], {"secret": SECRET})]
        for args, kwargs in calls:
            request = {"id": str(uuid4()), "delivery_info": {}}
            build_tracer(keyed.name, app.tasks[keyed.name], app=app)(str(uuid4()), args, kwargs, request)
    assert "KeyError('[redacted]')" in caplog.text or "[redacted]" in caplog.text
    assert "marker" not in caplog.text
