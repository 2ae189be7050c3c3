"""O-21: leaving a suspended body runs its cleanup step once, at the real end, and disturbs nobody.

Between turns the generator is closed: plain code in its `finally` may run then, but the step there runs when the body
has really ended, helpers refuse to work meanwhile, and a body that cannot be left is blocked.
"""

from __future__ import annotations

import gc
import logging
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.core.checks import run_checks
from django.db import connection

from durable_celery import (
    Signal,
    StepFailed,
    Workflow,
    current_workflow,
    gather,
    lints,
    now,
    random,
    set_status,
    side_effect,
    sleep,
    sleep_until,
    step,
    uuid4,
    workflow,
)
from tests.pump import BEGIN, Pump

ran: list[str] = []
released: list[str] = []
refused: list[tuple[str, str]] = []
answer = Signal("answer")


@step(retry=None)
def do(what: str, fails: bool = False) -> str:
    ran.append(what)
    if fails:
        raise RuntimeError(f"{what} is out of order")
    return what


def release() -> None:
    released.append("plain code")


@workflow
def cleaning(fails: bool) -> Workflow[str]:
    try:
        yield from do("a")
        yield from sleep(5)
        yield from do("b", fails)
    finally:
        release()
        yield from do("cleanup")
    return "done"


HELPERS: dict[str, Callable[[], Any]] = {
    "now": now,
    "uuid4": uuid4,
    "random": lambda: random().random(),
    "side_effect": lambda: side_effect(lambda: 1),
    "set_status": lambda: set_status("leaving"),
    "current_workflow": lambda: current_workflow().id,
    "step": lambda: do("never"),
    "sleep": lambda: sleep(1),
    "sleep_until": lambda: sleep_until(BEGIN),
    "wait": lambda: answer.wait(),
    "gather": lambda: gather(),
}


@workflow
def helping_itself() -> Workflow[int]:
    try:
        yield from sleep(5)
        yield from sleep(5)
    finally:
        for name, helper in HELPERS.items():
            try:
                made = helper()
                if name in ("step", "sleep", "sleep_until", "wait", "gather"):
                    yield from made
            except BaseException as error:  # noqa: BLE001 - what the body is given is the point
                refused.append((name, type(error).__name__))
    return 1


@workflow
def clinging(rounds: int) -> Workflow[None]:
    for _ in range(rounds):
        try:
            yield from sleep(5)
        except BaseException:  # noqa: BLE001 - the very bug
            pass


@workflow
def stubborn() -> Workflow[None]:
    command = sleep(5)
    while True:
        try:
            yield command
        except BaseException:  # noqa: BLE001 - the very bug
            continue


@pytest.fixture(autouse=True)
def _clean() -> None:
    ran.clear()
    released.clear()
    refused.clear()


@pytest.fixture
def unraised(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """What Python could only print, such as "generator ignored GeneratorExit"."""
    found: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda args: found.append(args.exc_value))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield found
        gc.collect()


@pytest.mark.parametrize("fails", [False, True])
def test_o21_a_cleanup_step_runs_once_at_the_real_end_and_never_when_a_turn_ends(
    pump: Pump, unraised: list[Any], capfd: pytest.CaptureFixture[str], fails: bool
) -> None:
    handle = cleaning.start(fails)
    pump.drain()
    gc.collect()
    assert ran == ["a"]
    pump.advance_time(seconds=4)
    gc.collect()
    assert ran == ["a"]
    pump.finish()
    gc.collect()
    assert ran == ["a", "b", "cleanup"]
    assert handle.status == ("FAILED" if fails else "COMPLETED")
    assert [entry.name for entry in handle.history() if entry.name] == [do.name] * 3
    assert len(released) >= 1
    assert unraised == []
    assert "GeneratorExit" not in capfd.readouterr().err


def test_o21_a_cancel_is_an_end_too_and_its_cleanup_runs_once(pump: Pump, unraised: list[Any]) -> None:
    handle = cleaning.start(False)
    pump.drain()
    assert handle.cancel("enough") == "requested"
    pump.finish()
    gc.collect()
    assert handle.status == "CANCELLED"
    assert ran == ["a", "cleanup"]
    assert unraised == []


def test_o21_the_error_that_ended_the_body_comes_through_its_cleanup(pump: Pump) -> None:
    handle = cleaning.start(True)
    pump.finish()
    with pytest.raises(Exception, match="b is out of order") as raised:
        handle.result(timeout=0)
    assert raised.value.matches(StepFailed)  # type: ignore[attr-defined]


def test_o21_every_helper_refuses_while_the_body_is_left(pump: Pump, unraised: list[Any]) -> None:
    handle = helping_itself.start()
    pump.drain()
    gc.collect()
    assert refused
    assert {kind for _, kind in refused} == {"Teardown"}
    assert {name for name, _ in refused} >= set(HELPERS) - {"gather"}
    assert [entry.kind for entry in handle.history()] == ["timer"]
    assert ran == []
    assert unraised == []


def test_o21_a_body_that_swallows_everything_is_left_or_blocked_and_never_runs_on(
    pump: Pump, unraised: list[Any]
) -> None:
    left, kept = clinging.start(3), stubborn.start()
    pump.drain()
    gc.collect()
    assert left.status in ("WAITING", "BLOCKED")
    assert kept.status == "BLOCKED"
    assert "cannot be left" in kept.waiting_for
    assert "test_o21.py" in kept.waiting_for
    assert kept.history() == []
    assert unraised == []


def test_o21_bodies_are_left_in_whatever_thread_takes_the_turn(pump: Pump, unraised: list[Any]) -> None:
    handle = cleaning.start(False)
    for _ in range(10):
        in_another_thread(lambda: pump.advance_time(seconds=1))
        gc.collect()
    in_another_thread(pump.finish)
    assert handle.result(timeout=0) == "done"
    assert ran == ["a", "b", "cleanup"]
    assert unraised == []


def test_o21_closing_one_body_reaches_no_other(pump: Pump, unraised: list[Any]) -> None:
    handles = [cleaning.start(False) for _ in range(4)]
    for _ in range(4):
        pump.advance_time(seconds=2)
        gc.collect()
    pump.advance_time(timedelta(minutes=1).total_seconds())
    assert [handle.result(timeout=0) for handle in handles] == ["done"] * 4
    assert sorted(ran) == ["a"] * 4 + ["b"] * 4 + ["cleanup"] * 4
    assert unraised == []


def test_o21_the_check_warns_of_plain_code_in_finally_with_its_line_and_what_to_write() -> None:
    warned = [message for message in run_checks(tags=["durable_celery"]) if message.id == "durable_celery.W109"]
    here = [message for message in warned if getattr(message.obj, "file", "") == __file__]
    lines = Path(__file__).read_text().splitlines()
    assert {lines[message.obj.line - 1].strip() for message in here} >= {"release()", "made = helper()"}
    (told,) = [message for message in here if message.msg.startswith(f"Workflow {cleaning.name},")]
    assert lines[told.obj.line - 1].strip() == "release()"
    assert str(told.obj).endswith(f"test_o21.py:{told.obj.line}")
    assert f"Workflow {cleaning.name}, cleaning(): release(...): it may run at each suspension" in told.msg
    assert "yield from cleanup(...) runs once, at the real end" in str(told.hint)
    assert not told.is_serious(logging.ERROR)


def test_o21_the_check_is_silent_where_a_line_says_so_and_where_only_steps_clean_up() -> None:
    assert [finding.line for finding in lints.findings(tidy)] == []


def test_o21_plain_code_in_finally_does_run_at_a_suspension_as_the_check_says(pump: Pump) -> None:
    handle = cleaning.start(False)
    pump.drain()
    assert handle.status == "WAITING"
    assert len(released) >= 1
    assert ran == ["a"]


def tidy() -> Workflow[None]:
    try:
        yield from do("a")
    finally:
        released.append("fine as it is")  # durable: ok
        yield from do("cleanup")
        release()


def in_another_thread(work: Callable[[], object]) -> None:
    errors: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001 - handed to the test
            errors.append(error)
        finally:
            connection.close()

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(60)
    assert not thread.is_alive()
    assert errors == []
