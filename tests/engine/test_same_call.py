"""A start under a key that is open is the same start, however its call is written; with other values it is another."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any

import pytest

from django_app.models import WorkflowInstance
from durable_celery import KeyConflict, Signal, Workflow, calls, workflow
from tests.pump import Pump

pytestmark = pytest.mark.django_db(transaction=True)

paid = Signal("same_call.paid", str)
NOBODY = object()  # a default that no value can be


@workflow(name="same_call.order", key=lambda order_id, *_, **__: f"order-{order_id}")
def order(
    order_id: int, note: str | None = None, lines: dict[str, int] | None = None, by: object = NOBODY, **more: Any
) -> Workflow[str]:
    return (yield from paid.wait())


@pytest.fixture
def pump() -> Iterator[Pump]:
    with Pump() as pump:
        yield pump


Start = Callable[[], Any]
SAME: dict[str, tuple[Start, Start]] = {
    "by name": (lambda: order.start(7), lambda: order.start(order_id=7)),
    "a default spelled out": (lambda: order.start(7), lambda: order.start(7, None)),
    "a default left out": (lambda: order.start(7, note=None, lines=None), lambda: order.start(7)),
    "a dict in another order": (
        lambda: order.start(7, lines={"a": 1, "b": 2}), lambda: order.start(7, None, {"b": 2, "a": 1})
    ),
    "names in another order": (lambda: order.start(7, x=1, y=2), lambda: order.start(y=2, x=1, order_id=7)),
    "Celery's form": (lambda: order.start(7, "n"), lambda: order.apply_async((7,), {"note": "n"})),
    "many": (lambda: order.start(order_id=7), lambda: order.start_many([(7,)])[0]),
}  # fmt: skip


@pytest.mark.parametrize(("first", "again"), SAME.values(), ids=list(SAME))
def test_the_same_call_otherwise_written_gives_the_open_instance(pump: Pump, first: Start, again: Start) -> None:
    handle = first()
    for start in (again, first):
        found = start()
        assert (found.id, found.created) == (handle.id, False)
    assert WorkflowInstance.objects.count() == 1


OTHER: dict[str, tuple[Start, Start]] = {
    "a value": (lambda: order.start(7, "a"), lambda: order.start(7, note="b")),
    "a value and a default": (lambda: order.start(7), lambda: order.start(7, "a")),
    "a bool for a number": (lambda: order.start(7, lines={"a": 1}), lambda: order.start(7, lines={"a": True})),
    "a number for a text": (lambda: order.start(7), lambda: order.apply_async(("7",))),
    "a type": (lambda: order.start(7, x=1), lambda: order.start(7, x=Decimal(1))),
    "a list in another order": (lambda: order.start(7, x=[1, 2]), lambda: order.start(7, x=[2, 1])),
    "what no default can be": (lambda: order.start(7), lambda: order.start(7, by=None)),
}


@pytest.mark.parametrize(("first", "again"), OTHER.values(), ids=list(OTHER))
def test_other_values_are_another_call(pump: Pump, first: Start, again: Start) -> None:
    handle = first()
    with pytest.raises(KeyConflict, match="other arguments") as caught:
        again()
    assert caught.value.instance_id == handle.id


def test_the_signal_of_such_a_start_is_delivered(pump: Pump) -> None:
    handle = order.start(7)
    order.using(signal=(paid, "card")).start(order_id=7)
    pump.finish()
    assert handle.result(timeout=0) == "card"


def test_the_signal_of_a_start_that_is_refused_is_not(pump: Pump) -> None:
    handle = order.start(7)
    with pytest.raises(KeyConflict):
        order.using(signal=(paid, "card")).start(7, note="another")
    pump.drain()
    assert handle.status == "WAITING"


def test_a_call_that_the_function_takes_no_more_is_compared_as_it_is_written() -> None:
    now = calls.signature_of(lambda order_id: None)
    assert calls.is_same(now, "[[7,8],{}]", "[[7,8],{}]")
    assert not calls.is_same(now, "[[7,8],{}]", "[[7],{}]")
    assert not calls.is_same(now, "", "[[7],{}]")
