"""An error about a value carries the id of the instance it was meant for, in its body and from outside."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from durable_celery import (
    CompleteLater,
    NotSerializable,
    PayloadTooLarge,
    Signal,
    StepClosed,
    Workflow,
    complete_step,
    current_step,
    heartbeat_step,
    map_step,
    query,
    runtime,
    side_effect,
    step,
    workflow,
)
from tests.pump import Pump

pytestmark = pytest.mark.django_db(transaction=True)

told = Signal("of_whom.told")
BAD: Any = {"of": lambda: 1}
LARGE = "x" * 2_000_000
tokens: list[str] = []


@step(name="of_whom.take")
def take(value: Any) -> None: ...


@step(name="of_whom.handed_over")
def handed_over() -> None:
    tokens[:] = [current_step().token]
    raise CompleteLater


@workflow(name="of_whom.child")
def child(value: Any) -> None: ...


@step(name="of_whom.beating")
def beating() -> str:
    try:
        current_step().heartbeat(BAD)
    except NotSerializable as error:
        return error.instance_id
    return "nothing was raised"


INSIDE: dict[str, Callable[[], Any]] = {
    "argument": lambda: take(BAD),
    "keyword": lambda: take(value=BAD),
    "large": lambda: take(LARGE),
    "child": lambda: child(BAD),
    "map": lambda: map_step(take, [BAD]),
    "side_effect": lambda: side_effect(lambda: BAD),
    "default": lambda: told.wait(1, BAD),
}


@workflow(name="of_whom.built")
def built(what: str) -> Workflow[str]:
    try:
        yield INSIDE[what]()
    except (NotSerializable, PayloadTooLarge) as error:
        return error.instance_id
    return "nothing was raised"


@workflow(name="of_whom.beats")
def beats() -> Workflow[str]:
    return (yield from beating())


@workflow(name="of_whom.waits")
def waits() -> Workflow[None]:
    query("bad", lambda: BAD)
    yield from handed_over()


@pytest.mark.parametrize("what", INSIDE)
def test_in_a_body(pump: Pump, what: str) -> None:
    handle = built.start(what)
    pump.finish()
    assert handle.result(timeout=0) == handle.id


def test_in_a_step(pump: Pump) -> None:
    handle = beats.start()
    pump.finish()
    assert handle.result(timeout=0) == handle.id


OUTSIDE: dict[str, Callable[[Any], Any]] = {
    "signal": lambda handle: handle.signal("s", BAD),
    "send": lambda handle: told.send(handle, BAD),
    "query": lambda handle: handle.query("bad"),
    "update": lambda handle: handle.update("u", BAD, wait=False),
    "skip": lambda handle: handle.skip("1", BAD),
    "complete_step": lambda handle: handle.complete_step("1", BAD),
    "complete_step by token": lambda handle: complete_step(tokens[0], LARGE),
    "heartbeat_step": lambda handle: heartbeat_step(tokens[0], BAD),
}


@pytest.mark.parametrize("ask", OUTSIDE.values(), ids=list(OUTSIDE))
def test_from_outside(pump: Pump, ask: Callable[[Any], Any]) -> None:
    handle = waits.start()
    pump.drain()
    with pytest.raises((NotSerializable, PayloadTooLarge)) as caught:
        ask(handle)
    assert caught.value.instance_id == handle.id


def test_a_step_that_changes_too_fast_is_told_with_its_instance(pump: Pump, monkeypatch: pytest.MonkeyPatch) -> None:
    handle = waits.start()
    pump.drain()
    store = runtime.current().store
    monkeypatch.setattr(type(store), "change_step", lambda *_: SimpleNamespace(ok=False))
    with pytest.raises(StepClosed) as caught:
        complete_step(tokens[0])
    assert caught.value.instance_id == handle.id
