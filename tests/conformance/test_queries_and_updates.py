from __future__ import annotations

from typing import Any

import pytest

from durable_celery import (
    InstanceClosed,
    Signal,
    UpdateRejected,
    UsageError,
    query,
    sleep,
    update,
    wait_until,
)
from tests.conformance.lives import ran, say, start
from tests.pump import Pump

done = Signal("checklist.done")


def account() -> Any:
    state: dict[str, Any] = {"balance": 0, "seen": []}

    def deposit(amount: int) -> int:
        if amount == 13:
            raise RuntimeError("the vault is stuck")
        state["balance"] += amount
        state["seen"].append(amount)
        return int(state["balance"])

    def check(amount: int) -> None:
        if amount < 0:
            raise ValueError("below zero")

    query("balance", lambda plus=0: state["balance"] + plus)
    update("deposit", deposit, validate=check)
    yield from done.wait()
    yield from say(state["balance"])
    return state["seen"]


@pytest.fixture
def handle(pump: Pump) -> Any:
    handle = start(account)
    pump.drain()
    return handle


def send(pump: Pump, handle: Any, *args: Any, **options: Any) -> Any:
    sent = handle.update("deposit", *args, wait=False, **options)
    pump.drain()
    return handle.update("deposit", *args, update_id=sent, timeout=0)


def test_a_query_sees_the_state_after_the_last_turn(pump: Pump, handle: Any) -> None:
    assert handle.query("balance") == 0
    send(pump, handle, 5)
    assert handle.query("balance") == 5


def test_a_query_takes_arguments(pump: Pump, handle: Any) -> None:
    assert handle.query("balance", 100) == 100


def test_a_query_changes_nothing(pump: Pump, handle: Any) -> None:
    before = handle.history()
    for _ in range(3):
        handle.query("balance")
    pump.drain()
    assert (handle.history(), handle.status) == (before, "WAITING")


def test_a_query_is_answered_after_the_end(pump: Pump, handle: Any) -> None:
    send(pump, handle, 7)
    done.send(handle)
    pump.drain()
    assert (handle.status, handle.query("balance")) == ("COMPLETED", 7)


def test_an_unknown_query_names_those_there_are(pump: Pump, handle: Any) -> None:
    with pytest.raises(UsageError, match="balance"):
        handle.query("weather")


def test_an_error_of_a_query_comes_to_who_asks(pump: Pump) -> None:
    def body() -> Any:
        query("broken", lambda: 1 / 0)
        yield from sleep(60)

    handle = start(body)
    pump.drain()
    with pytest.raises(ZeroDivisionError):
        handle.query("broken")
    assert handle.status == "WAITING"


def test_an_update_changes_the_state_and_gives_an_answer(pump: Pump, handle: Any) -> None:
    assert send(pump, handle, 5) == 5
    assert send(pump, handle, 6) == 11
    done.send(handle)
    pump.drain()
    assert handle.result(timeout=0) == [5, 6]
    assert ran == [11]


def test_updates_run_in_the_order_they_were_sent(pump: Pump, handle: Any) -> None:
    for amount in (1, 2, 3):
        handle.update("deposit", amount, wait=False)
    done.send(handle)
    pump.drain()
    assert handle.result(timeout=0) == [1, 2, 3]


def test_an_update_sent_twice_with_one_id_runs_once(pump: Pump, handle: Any) -> None:
    assert send(pump, handle, 5, update_id="u-1") == 5
    assert send(pump, handle, 5, update_id="u-1") == 5
    assert handle.query("balance") == 5


def test_a_rejected_update_leaves_no_trace(pump: Pump, handle: Any) -> None:
    before = handle.history()
    with pytest.raises(UpdateRejected, match="below zero") as caught:
        send(pump, handle, -1)
    assert caught.value.matches(ValueError)
    assert caught.value.accepted is False
    assert (handle.query("balance"), handle.history()) == (0, before)


def test_an_update_whose_function_raises_is_rejected_and_the_body_goes_on(pump: Pump, handle: Any) -> None:
    with pytest.raises(UpdateRejected, match="the vault is stuck") as caught:
        send(pump, handle, 13)
    assert caught.value.accepted is True
    assert (handle.status, send(pump, handle, 1)) == ("WAITING", 1)


def test_an_unknown_update_is_rejected(pump: Pump, handle: Any) -> None:
    sent = handle.update("withdraw", 1, wait=False)
    pump.drain()
    with pytest.raises(UpdateRejected, match="deposit"):
        handle.update("withdraw", 1, update_id=sent, timeout=0)


def test_an_answer_is_found_again_after_the_end(pump: Pump, handle: Any) -> None:
    send(pump, handle, 5, update_id="u-1")
    done.send(handle)
    pump.drain()
    assert handle.update("deposit", 5, update_id="u-1", timeout=0) == 5


def test_an_update_after_the_end_is_refused(pump: Pump, handle: Any) -> None:
    done.send(handle)
    pump.drain()
    with pytest.raises(InstanceClosed):
        handle.update("deposit", 5, wait=False)


def test_an_update_not_taken_in_yet_times_out(pump: Pump, handle: Any) -> None:
    with pytest.raises(TimeoutError):
        handle.update("deposit", 5, update_id="u-1", timeout=0)
    pump.drain()
    assert handle.update("deposit", 5, update_id="u-1", timeout=0) == 5


def test_an_update_wakes_a_body_that_waits_for_what_it_changes(pump: Pump) -> None:
    def body() -> Any:
        names: list[str] = []
        update("join", lambda name: names.append(name) or len(names))  # type: ignore[func-returns-value]
        yield from wait_until(lambda: len(names) == 2)
        return (yield from say(names))

    handle = start(body)
    for name in ("ana", "bo"):
        handle.update("join", name, wait=False)
        pump.drain()
    assert handle.result(timeout=0) == ["ana", "bo"]
