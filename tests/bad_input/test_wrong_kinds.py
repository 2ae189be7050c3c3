"""A value of the wrong kind is refused at the door, by a ``ValueError`` of ours that says what was expected."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from durable_celery import (
    BadValue,
    Saga,
    Signal,
    Workflow,
    canvas,
    continue_as_new,
    deprecate_patch,
    gather,
    get_logger,
    get_version,
    map_step,
    patched,
    poll,
    query,
    race,
    register_context,
    register_type,
    run,
    set_attributes,
    set_status,
    shield,
    side_effect,
    sleep,
    sleep_until,
    spawn,
    step,
    update,
    wait_until,
    workflow,
)
from tests.pump import Pump

pytestmark = pytest.mark.django_db(transaction=True)

told = Signal("wrong_kinds.told")
FIVE: Any = 5


@step(name="wrong_kinds.take")
def take() -> None: ...


@step(name="wrong_kinds.take_one")
def take_one(item: int) -> None: ...


@workflow(name="wrong_kinds.asked")
def asked(what: str) -> Workflow[tuple[bool, str]]:
    if what != "wait":
        try:
            INSIDE[what]()
        except Exception as error:
            return isinstance(error, BadValue), f"{type(error).__name__}: {error}"
    yield from told.wait()
    return False, "nothing was raised"


INSIDE: dict[str, Callable[[], Any]] = {
    "canvas": lambda: canvas(FIVE),
    "compensate_with": lambda: take().compensate_with(FIVE),
    "side_effect": lambda: side_effect(FIVE),
    "get_logger": lambda: get_logger(FIVE),
    "wait_until": lambda: wait_until(FIVE),
    "poll": lambda: poll(FIVE, until=bool),
    "poll until": lambda: poll(take(), until=FIVE),
    "poll every": lambda: poll(take(), until=bool, every="soon"),  # type: ignore[arg-type]
    "gather": lambda: gather(FIVE, FIVE),
    "gather limit": lambda: gather(take(), limit="2"),  # type: ignore[call-overload]
    "race": lambda: race(FIVE),
    "spawn": lambda: spawn(FIVE),
    "shield": lambda: shield(FIVE),
    "sleep": lambda: sleep("5"),  # type: ignore[arg-type]
    "sleep_until": lambda: sleep_until(FIVE),
    "map_step": lambda: map_step(FIVE, []),
    "map_step items": lambda: map_step(take_one, FIVE),
    "wait timeout": lambda: told.wait(timeout="5"),  # type: ignore[call-overload]
    "wait warn_after": lambda: told.wait(warn_after="5"),  # type: ignore[call-overload]
    "on": lambda: told.on(FIVE),
    "query": lambda: query(FIVE, lambda: 1),
    "query function": lambda: query("q", FIVE),
    "update": lambda: update(FIVE, lambda: 1),
    "update function": lambda: update("u", FIVE),
    "update validate": lambda: update("u", lambda: 1, FIVE),
    "patched": lambda: patched(FIVE),
    "deprecate_patch": lambda: deprecate_patch(FIVE),
    "get_version": lambda: get_version(FIVE, 1, 2),
    "get_version minimum": lambda: get_version("v", "1", 2),  # type: ignore[arg-type]
    "set_status": lambda: set_status(FIVE),
    "set_attributes": lambda: set_attributes(x=object()),
    "Saga.add": lambda: Saga().add(FIVE),
    "continue_as_new": lambda: continue_as_new(workflow=FIVE),
    "step using": lambda: take.using(queue=FIVE),
    "child using": lambda: asked.using(parent_close=FIVE),
}
OUTSIDE: dict[str, Callable[[], Any]] = {
    "step": lambda: step(FIVE),
    "workflow": lambda: workflow(FIVE),
    "step name": lambda: step(name=FIVE)(len),
    "Signal": lambda: Signal(FIVE),
    "run": lambda: run(FIVE),
    "start_many": lambda: asked.start_many(FIVE),
    "start_many one": lambda: asked.start_many([FIVE]),
    "start_many text": lambda: asked.start_many("ab"),
    "using id": lambda: asked.using(id=FIVE),
    "using an empty id": lambda: asked.using(id=""),
    "using key": lambda: asked.using(key=FIVE),
    "using queue": lambda: asked.using(queue=FIVE),
    "using priority": lambda: asked.using(priority="5"),  # type: ignore[arg-type]
    "using start_delay": lambda: asked.using(start_delay="5"),  # type: ignore[arg-type]
    "using execution_timeout": lambda: asked.using(execution_timeout="5"),  # type: ignore[arg-type]
    "using attributes": lambda: asked.using(attributes=FIVE),
    "using memo": lambda: asked.using(memo=FIVE),
    "using subject": lambda: asked.using(subject=FIVE).start("wait"),
    "using signal": lambda: asked.using(signal=FIVE),
    "using conflict": lambda: asked.using(conflict=FIVE),
    "apply_async": lambda: asked.apply_async(FIVE),
    "apply_async kwargs": lambda: asked.apply_async((), FIVE),
    "apply_async countdown": lambda: asked.apply_async(("wait",), countdown="5"),
    "apply_async eta": lambda: asked.apply_async(("wait",), eta=FIVE),
    "apply_async queue": lambda: asked.apply_async(("wait",), queue=FIVE),
    "get": lambda: asked.get(key=FIVE),
    "register_type": lambda: register_type(FIVE, str, str),
    "register_context": lambda: register_context(FIVE, FIVE, FIVE),
}
ASKED: dict[str, Callable[[Any], Any]] = {
    "result": lambda handle: handle.result(timeout="5"),
    "signal": lambda handle: handle.signal(FIVE),
    "signal_id": lambda handle: handle.signal("s", signal_id=FIVE),
    "query": lambda handle: handle.query(FIVE),
    "update": lambda handle: handle.update(FIVE),
    "update timeout": lambda handle: handle.update("u", timeout="5"),
    "update_id": lambda handle: handle.update("u", update_id=FIVE, wait=False),
    "cancel": lambda handle: handle.cancel(FIVE),
    "terminate": lambda handle: handle.terminate(FIVE),
    "pause": lambda handle: handle.pause(FIVE),
    "skip": lambda handle: handle.skip(FIVE),
    "retry_step": lambda handle: handle.retry_step(FIVE),
    "fork": lambda handle: handle.fork(FIVE),
    "complete_step": lambda handle: handle.complete_step(FIVE),
    "fail_step": lambda handle: handle.fail_step(FIVE),
    "history of": lambda handle: handle.history(of=FIVE),
    "history start": lambda handle: handle.history(start=-1),
    "history limit": lambda handle: handle.history(limit="5"),
}


@pytest.fixture
def pump() -> Iterator[Pump]:
    with Pump() as pump:
        yield pump


@pytest.mark.parametrize("what", INSIDE)
def test_in_a_body(pump: Pump, what: str) -> None:
    handle = asked.start(what)
    pump.finish()
    assert handle.status == "COMPLETED", handle.waiting_for
    refused, why = handle.result(timeout=0)
    assert refused, why


@pytest.mark.parametrize("call", OUTSIDE.values(), ids=list(OUTSIDE))
def test_outside(pump: Pump, call: Callable[[], Any]) -> None:
    with pytest.raises(BadValue):
        call()


@pytest.mark.parametrize("ask", ASKED.values(), ids=list(ASKED))
def test_of_a_handle(pump: Pump, ask: Callable[[Any], Any]) -> None:
    handle = asked.start("wait")
    pump.drain()
    with pytest.raises(BadValue):
        ask(handle)
    assert handle.status == "WAITING"
