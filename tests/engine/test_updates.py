"""`handle.update`: validated, run once, answered on its row; who sends it always learns what became of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.db import transaction

from django_app.models import Mailbox, Message, WorkflowInstance
from durable_celery import (
    DurableError,
    InstanceClosed,
    InstanceNotFound,
    PayloadTooLarge,
    Signal,
    UpdateRejected,
    UsageError,
    Workflow,
    WorkflowBlocked,
    get_handle,
    query,
    step,
    update,
    workflow,
)
from durable_celery.errors import BadValue
from tests.pump import Pump, release

end = Signal("end")


class OutOfStock(Exception):
    def __init__(self, item: str, left: int) -> None:
        super().__init__(f"{left} {item} left")
        self.item = item
        self.left = left


@step
def work(number: int) -> int:
    return number


@workflow
def basket() -> Workflow[list[Any]]:
    items: list[Any] = []

    def add(item: str, count: int = 1) -> int:
        if item == "raise":
            raise LookupError("no such item")
        items.append((item, count))
        return len(items)

    def in_stock(item: str, count: int = 1) -> None:
        if count > 5:
            raise OutOfStock(item, 5)

    update("add", add, in_stock)
    update("big", lambda: "x" * 2_000_000)
    update("nothing", lambda: None)
    query("items", lambda: items)
    yield from work(1)
    yield from end.wait(warn_after=3600)
    return items


@pytest.fixture
def handle(pump: Pump) -> Any:
    handle = basket.start()
    pump.drain()
    return handle


def delivering(pump: Pump, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever waits lets the worker work meanwhile."""
    monkeypatch.setattr("durable_celery.handle.time.sleep", lambda seconds: pump.drain())


def sent(handle: Any, pump: Pump, name: str, *args: Any, **options: Any) -> Any:
    """Send, let it be taken in, read the answer."""
    update_id = handle.update(name, *args, wait=False, **options)
    pump.drain()
    return handle.update(name, *args, update_id=update_id, timeout=0)


def test_an_update_changes_the_body_and_gives_its_answer(
    handle: Any, pump: Pump, monkeypatch: pytest.MonkeyPatch
) -> None:
    delivering(pump, monkeypatch)
    assert handle.update("add", "tea", 2) == 1
    assert handle.update("add", "milk", timeout=5) == 2
    assert handle.update("nothing") is None
    assert handle.query("items") == [("tea", 2), ("milk", 1)]
    handle.signal("end")
    pump.drain()
    assert handle.result(timeout=0) == [("tea", 2), ("milk", 1)]


def test_a_rejected_update_leaves_no_trace(handle: Any, pump: Pump) -> None:
    def everything() -> list[Any]:
        history = [(e.position, e.state, e.turn) for e in handle.history()]
        tables = [list(model.objects.values()) for model in (Message, Mailbox)]
        instance = WorkflowInstance.objects.values().get()
        instance.pop("revision")
        return [history, tables, instance]

    before = everything()
    with pytest.raises(UpdateRejected) as raised:
        sent(handle, pump, "add", "tea", 6)
    assert everything() == before
    error = raised.value
    assert (error.update, error.accepted, error.message) == ("add", False, "5 tea left")
    assert error.error_type == f"{__name__}.OutOfStock"
    assert error.attributes == {"item": "tea", "left": 5}
    assert error.matches(OutOfStock)
    assert "update 'add'" in str(error)
    assert "was rejected: OutOfStock: 5 tea left" in str(error)
    assert error.instance_id == handle.id


def test_an_update_that_was_rejected_may_be_sent_again_with_its_id(handle: Any, pump: Pump) -> None:
    with pytest.raises(UpdateRejected):
        sent(handle, pump, "add", "tea", 6, update_id="mine")
    assert sent(handle, pump, "add", "tea", 5, update_id="mine") == 1


def test_a_rejection_beside_something_new_is_kept_out_of_the_turn(handle: Any, pump: Pump) -> None:
    rejected = handle.update("add", "tea", 6, wait=False)
    accepted = handle.update("add", "tea", 5, wait=False)
    pump.drain()
    assert handle.update("add", update_id=accepted, timeout=0) == 1
    assert list(Message.objects.order_by("id").values_list("kind", "taken_turn")) == [("rejected", 0), ("update", 3)]
    with pytest.raises(UpdateRejected):
        handle.update("add", update_id=rejected, timeout=0)
    assert Message.objects.count() == 1
    handle.signal("end")
    pump.drain()
    assert handle.result(timeout=0) == [("tea", 5)]


def test_the_same_update_id_gives_the_same_answer_and_runs_nothing_also_after_the_end(handle: Any, pump: Pump) -> None:
    assert sent(handle, pump, "add", "tea", update_id="webhook-7") == 1
    assert sent(handle, pump, "add", "tea", update_id="webhook-7") == 1
    assert handle.query("items") == [("tea", 1)]
    handle.signal("end", signal_id="webhook-7")
    pump.drain()
    assert handle.status == "COMPLETED"
    assert handle.update("add", "tea", update_id="webhook-7", timeout=0) == 1
    with pytest.raises(BadValue, match="was used for update 'add'"):
        handle.update("nothing", update_id="webhook-7", timeout=0)


def test_an_unknown_update_names_those_there_are(handle: Any, pump: Pump) -> None:
    with pytest.raises(UpdateRejected, match="no update 'remove' now; known are 'add', 'big', 'nothing'"):
        sent(handle, pump, "remove")
    with pytest.raises(UpdateRejected, match="too many positional arguments"):
        sent(handle, pump, "add", 1, 2, 3)
    assert Message.objects.count() == 0


def test_a_function_that_raises_is_the_senders_to_know_and_the_instance_goes_on(handle: Any, pump: Pump) -> None:
    with pytest.raises(UpdateRejected) as raised:
        sent(handle, pump, "add", "raise", update_id="odd")
    assert (raised.value.accepted, raised.value.error_type, raised.value.message) == (
        True, "LookupError", "no such item",
    )  # fmt: skip
    assert "was accepted, and its function raised: LookupError: no such item" in str(raised.value)
    with pytest.raises(UpdateRejected, match="no such item"):
        handle.update("add", update_id="odd", timeout=0)
    assert sent(handle, pump, "add", "tea") == 1
    handle.signal("end")
    pump.drain()
    assert handle.status == "COMPLETED"


def test_an_answer_over_the_limit_is_refused_and_the_instance_goes_on(handle: Any, pump: Pump) -> None:
    with pytest.raises(UpdateRejected) as raised:
        sent(handle, pump, "big")
    assert raised.value.matches(PayloadTooLarge)
    assert handle.status == "WAITING"
    with pytest.raises(PayloadTooLarge):
        handle.update("add", "x" * 2_000_000, wait=False)


def test_with_wait_it_is_refused_inside_atomic_and_without_it_joins_the_transaction(handle: Any, pump: Pump) -> None:
    with transaction.atomic():
        with pytest.raises(UsageError, match=r"inside atomic\(\)"):
            handle.update("add", "tea")
        update_id = handle.update("add", "tea", wait=False)
        assert pump.queue == []
    pump.drain()
    assert handle.update("add", update_id=update_id, timeout=0) == 1
    with transaction.atomic():
        handle.update("add", "milk", wait=False)
        transaction.set_rollback(True)
    pump.drain()
    assert handle.query("items") == [("tea", 1)]


def test_a_timeout_says_what_it_waits_for_and_the_update_is_taken_in_later(handle: Any, pump: Pump) -> None:
    with pytest.raises(
        TimeoutError, match=r"update 'add' \(mine\) .* after 0 s; the instance is WAITING: signal 'end'"
    ):
        handle.update("add", "tea", update_id="mine", timeout=0)
    pump.drain()
    assert handle.update("add", "tea", update_id="mine", timeout=0) == 1


def test_a_paused_instance_says_so_and_takes_it_in_once_resumed(handle: Any, pump: Pump) -> None:
    handle.pause("lunch")
    update_id = handle.update("add", "tea", wait=False)
    pump.drain()
    with pytest.raises(TimeoutError, match="the instance is PAUSED"):
        handle.update("add", update_id=update_id, timeout=0)
    handle.resume()
    pump.drain()
    assert handle.update("add", update_id=update_id, timeout=0) == 1


def test_a_blocked_instance_says_so_and_takes_it_in_once_it_goes_on(pump: Pump) -> None:
    def body(bug: bool) -> Callable[[], Workflow[Any]]:
        def updated() -> Workflow[Any]:
            update("set", lambda value: value)
            yield from work(1)
            if bug:
                raise ValueError("a bug")
            yield from end.wait(warn_after=3600)

        return updated

    handle = release("updates.blocked", body(True)).start()
    pump.drain()
    with pytest.raises(TimeoutError, match="the instance is BLOCKED: blocked: ValueError: a bug"):
        handle.update("set", 1, update_id="mine", timeout=0)
    with pytest.raises(WorkflowBlocked, match=r"update 'set' \(mine\) cannot be taken in: .* blocked: ValueError"):
        handle.update("set", 1, update_id="mine")
    release("updates.blocked", body(False))
    handle.retry()
    pump.drain()
    assert handle.update("set", update_id="mine", timeout=0) == 1


def test_an_update_to_one_that_has_ended_is_refused(handle: Any, pump: Pump) -> None:
    handle.terminate()
    with pytest.raises(InstanceClosed):
        handle.update("add", "tea", timeout=0)
    with pytest.raises(InstanceClosed):
        handle.update("add", "tea", wait=False)
    assert Message.objects.count() == 0


def test_updates_are_found_by_the_id_of_any_run_and_nothing_by_none(handle: Any, pump: Pump) -> None:
    assert sent(get_handle(handle.run_id), pump, "add", "tea", update_id="x") == 1
    handle_of_nothing = type(handle)("00000000-0000-0000-0000-000000000007")
    with pytest.raises(InstanceNotFound):
        handle_of_nothing.update("add", timeout=0)


@pytest.mark.parametrize("wrong", ["", " ", 7])
def test_a_wrong_id_or_name_is_refused(handle: Any, wrong: Any) -> None:
    with pytest.raises(BadValue, match="update_id="):
        handle.update("add", "tea", update_id=wrong)
    with pytest.raises(BadValue, match="an update needs a name"):
        handle.update(wrong)
    with pytest.raises(DurableError, match="a query needs a name"):
        handle.query(wrong)


def test_the_async_twin_waits_without_a_thread(handle: Any, pump: Pump, monkeypatch: pytest.MonkeyPatch) -> None:
    from durable_celery.twins import in_thread

    async def drain(seconds: float) -> None:
        await in_thread(pump.drain)()

    async def both() -> list[Any]:
        return [
            await handle.aupdate("add", "tea", update_id="a"),
            await handle.aupdate("add", "tea", update_id="b", wait=False),
            await handle.aupdate("add", "tea", update_id="b", timeout=5),
        ]

    monkeypatch.setattr("durable_celery.handle.asyncio.sleep", drain)
    assert async_to_sync(both)() == [1, "b", 2]
