"""Signals, cancels and pauses in the transaction of their sender; `tests/cases/test_o39.py` tells it of starts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.db import connections, transaction
from django.http import HttpRequest, HttpResponse
from django.test import Client
from django.urls import path

from django_app.models import Message, WorkflowInstance
from durable_celery import (
    InstanceClosed,
    InstanceNotFound,
    Signal,
    Workflow,
    WorkflowCancelled,
    WorkflowHandle,
    workflow,
)
from tests.pump import Pump

pytestmark = pytest.mark.django_db(transaction=True)

paid = Signal("paid", int)


class Unhappy(Exception):
    pass


@workflow(name="transactions.collecting", key=lambda key: key)
def collecting(key: str) -> Workflow[list[int]]:
    """Collects amounts until a zero comes."""
    got: list[int] = []
    while amount := (yield from paid.wait()):
        got.append(amount)
    return got


def pay(handle: Any, *amounts: int) -> None:
    for amount in amounts:
        paid.send(handle, amount)


def collected(pump: Pump, handle: WorkflowHandle[list[int]]) -> list[int]:
    pay(handle, 0)
    pump.finish()
    return handle.result(timeout=0)


@pytest.fixture
def waiting(pump: Pump) -> WorkflowHandle[list[int]]:
    handle = collecting.start("order-7")
    pump.drain()
    pump.sent.clear()
    return handle


def test_a_signal_is_hinted_at_after_the_commit_and_not_before(pump: Pump, waiting: Any) -> None:
    with transaction.atomic():
        with transaction.atomic():
            pay(waiting, 1)
        pay(waiting, 2)
        assert pump.sent == []
        pump.drain()
        assert Message.objects.filter(taken_turn__isnull=True).count() == 2
    assert len(pump.sent) == 2
    assert collected(pump, waiting) == [1, 2]


def test_a_signal_that_is_rolled_back_was_never_sent(pump: Pump, waiting: Any) -> None:
    with pytest.raises(Unhappy), transaction.atomic():  # noqa: PT012
        pay(waiting, 1)
        raise Unhappy
    assert pump.sent == []
    assert collected(pump, waiting) == []


def test_a_savepoint_takes_its_signals_with_it_and_leaves_the_others_in_order(pump: Pump, waiting: Any) -> None:
    with transaction.atomic():
        pay(waiting, 1)
        with pytest.raises(Unhappy), transaction.atomic():  # noqa: PT012
            pay(waiting, 2)
            raise Unhappy
        pay(waiting, 3)
    assert len(pump.sent) == 2
    assert collected(pump, waiting) == [1, 3]


def test_the_id_of_a_signal_that_was_rolled_back_can_be_used_again(pump: Pump, waiting: Any) -> None:
    for fails in (True, False, False):
        try:
            with transaction.atomic():
                paid.send(waiting, 5, signal_id="webhook-77")
                if fails:
                    raise Unhappy
        except Unhappy:
            assert fails
    assert collected(pump, waiting) == [5]


def test_a_start_and_its_signals_share_one_transaction(pump: Pump) -> None:
    with transaction.atomic():
        handle = collecting.start("order-8")
        pay(handle, 1, 2)
    assert collected(pump, handle) == [1, 2]
    with pytest.raises(Unhappy), transaction.atomic():  # noqa: PT012
        gone = collecting.start("order-9")
        pay(gone, 1)
        raise Unhappy
    assert not Message.objects.filter(instance_id=gone.id).exists()
    with pytest.raises(InstanceNotFound):
        pay(gone, 2)


def test_a_refused_signal_leaves_the_transaction_of_its_sender_usable(pump: Pump, waiting: Any) -> None:
    assert collected(pump, waiting) == []
    with transaction.atomic():
        other = collecting.start("order-10")
        with pytest.raises(InstanceClosed):
            pay(waiting, 1)
        pay(other, 7)
    assert collected(pump, other) == [7]


def test_a_neighbour_that_raises_on_commit_costs_the_hint_and_not_the_signal(pump: Pump, waiting: Any) -> None:
    with pytest.raises(Unhappy), transaction.atomic():  # noqa: PT012
        transaction.on_commit(_raise)
        pay(waiting, 1)
    assert pump.sent == []
    pump.advance_time(seconds=5)
    assert len(pump.sent) == 1
    assert collected(pump, waiting) == [1]


def test_our_hint_that_fails_harms_no_neighbour(pump: Pump, waiting: Any) -> None:
    told: list[str] = []

    def broken(*args: Any, **kwargs: Any) -> bool:
        raise Unhappy

    send, pump.advance = pump.advance, broken  # type: ignore[method-assign]
    with transaction.atomic():
        pay(waiting, 1)
        transaction.on_commit(lambda: told.append("the neighbour"))
    pump.advance = send  # type: ignore[method-assign]
    assert told == ["the neighbour"]
    assert collected(pump, waiting) == [1]


def _raise() -> None:
    raise Unhappy


def test_a_cancel_takes_hold_with_the_commit_and_is_taken_back_with_a_rollback(pump: Pump, waiting: Any) -> None:
    with pytest.raises(Unhappy), transaction.atomic():  # noqa: PT012
        assert waiting.cancel("changed my mind") == "requested"
        raise Unhappy
    pump.finish()
    assert (waiting.status, pump.sent) == ("WAITING", [])
    with transaction.atomic():
        with pytest.raises(Unhappy), transaction.atomic():  # noqa: PT012
            waiting.cancel("in a savepoint")
            raise Unhappy
        assert pump.sent == []
        waiting.cancel("for good")
        assert pump.sent == []
    assert len(pump.sent) == 1
    pump.finish()
    assert waiting.status == "CANCELLED"
    with pytest.raises(WorkflowCancelled, match="for good"):
        waiting.result(timeout=0)


def test_terminate_pause_and_resume_are_rolled_back_too(pump: Pump, waiting: Any) -> None:
    for act in (waiting.terminate, waiting.pause):
        with pytest.raises(Unhappy), transaction.atomic():  # noqa: PT012
            act("a mistake")
            raise Unhappy
        assert waiting.status == "WAITING"
    waiting.pause("stocktaking")
    with pytest.raises(Unhappy), transaction.atomic():  # noqa: PT012
        waiting.resume()
        raise Unhappy
    assert waiting.status == "PAUSED"
    waiting.resume()
    assert collected(pump, waiting) == []


# -- ATOMIC_REQUESTS -------------------------------------------------------------------------------------------------


def webhook(request: HttpRequest, amount: int) -> HttpResponse:
    handle = collecting.get(key="order-7")
    pay(handle, amount)
    collecting.start(f"receipt for {amount}")
    if "fail" in request.GET:
        raise Unhappy
    return HttpResponse(status=400 if "bad" in request.GET else 200)


urlpatterns = [path("webhook/<int:amount>", webhook)]


@pytest.fixture
def site(settings: Any) -> Iterator[Client]:
    settings.ROOT_URLCONF = __name__
    connections["default"].settings_dict["ATOMIC_REQUESTS"] = True
    yield Client(raise_request_exception=False)
    connections["default"].settings_dict["ATOMIC_REQUESTS"] = False


def test_a_request_that_fails_has_sent_and_started_nothing(pump: Pump, waiting: Any, site: Client) -> None:
    assert site.get("/webhook/1").status_code == 200
    assert site.get("/webhook/2?fail=1").status_code == 500
    assert site.get("/webhook/3?bad=1").status_code == 400  # Django commits: no exception
    assert collected(pump, waiting) == [1, 3]
    keys = WorkflowInstance.objects.open().values_list("key", flat=True)
    assert sorted(key for key in keys if key) == ["receipt for 1", "receipt for 3"]
