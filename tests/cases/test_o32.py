"""O-32: a signal at or after the end is read by another turn, kept and shown as unread, or its sender is told."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import StringIO
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connection, transaction
from django.urls import reverse

from django_app.models import Message, WorkflowInstance
from durable_celery import InstanceClosed, Signal, Workflow, faults, step, workflow
from durable_celery.engine import turns
from durable_celery.handle import WorkflowHandle
from tests.pump import Pump

go = Signal("go", int)


@step
def work() -> None:
    pass


@workflow
def reading_all() -> Workflow[list[int]]:
    """Takes what comes before the end of its step, with which it ends itself."""
    received: list[int] = []
    go.on(received.append)
    yield from work()
    return received


@workflow
def reading_none() -> Workflow[str]:
    yield from work()
    return "done"


@workflow
def undoing() -> Workflow[None]:
    yield from work().compensate_with(undo)
    yield from failing()


@step
def undo(result: None) -> None:
    pass


@step(retry=None)
def failing() -> None:
    raise ValueError("no")


def last_turn(pump: Pump, definition: Any) -> tuple[WorkflowHandle[Any], Callable[[], None]]:
    """An instance whose next turn is its last, and what takes that turn."""
    handle = definition.start()
    pump.deliver(pump.queue[0])
    (message,) = pump.queue

    def run() -> None:
        pump.deliver(message)
        pump.finish()

    return handle, run


def outcome(send: Callable[[], None]) -> str:
    try:
        send()
    except InstanceClosed:
        return "told"
    return "accepted"


@contextmanager
def once_at(point: str, act: Callable[[], Any]) -> Iterator[list[Any]]:
    """Does ``act`` when a turn reaches this point for the first time; its answer is left in the list."""
    answers: list[Any] = []

    def reach(name: str) -> None:
        if name == point and not answers:
            answers.append(None)
            answers[0] = act()

    faults.set_hook(reach)
    try:
        yield answers
    finally:
        faults.set_hook(None)


class Beside:
    """A sender with a connection of its own."""

    def __init__(self, act: Callable[[], Any]) -> None:
        self.answer: Any = None
        self.error: BaseException | None = None
        self._act = act
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            self.answer = self._act()
        except BaseException as error:  # noqa: BLE001 - handed to the test
            self.error = error
        finally:
            connection.close()

    def join(self) -> Any:
        self._thread.join(60)
        assert not self._thread.is_alive()
        assert self.error is None, self.error
        return self.answer


# -- (a) after the end -------------------------------------------------------------------------------------------------


def test_o32_after_the_end_the_sender_is_told_and_nothing_is_stored(pump: Pump) -> None:
    handle, run = last_turn(pump, reading_none)
    run()
    assert handle.status == "COMPLETED"
    with pytest.raises(InstanceClosed, match="has ended") as caught:
        go.send(handle, 1)
    assert (caught.value.instance_id, caught.value.status) == (handle.id, "COMPLETED")
    with pytest.raises(InstanceClosed):
        handle.signal("any name", signal_id="w-1")
    assert Message.objects.count() == 0


# -- (b) between the final turn and its commit -------------------------------------------------------------------------


@pytest.mark.parametrize("point", ["turn.before_body", "turn.before_commit"])
def test_o32_before_the_commit_it_is_accepted_and_another_turn_reads_it(pump: Pump, point: str) -> None:
    handle, run = last_turn(pump, reading_all)
    with once_at(point, lambda: Beside(lambda: outcome(lambda: go.send(handle, 7))).join()) as answers:
        run()
    assert answers == ["accepted"]
    assert handle.result(timeout=0) == [7]
    message = Message.objects.get()
    assert message.delivered_turn == message.taken_turn == WorkflowInstance.objects.get().turn


def test_o32_while_the_commit_is_under_way_the_sender_waits_and_is_told(pump: Pump) -> None:
    handle, run = last_turn(pump, reading_all)
    senders: list[Beside] = []
    began = threading.Event()

    def send() -> str:
        connection.ensure_connection()
        began.set()
        return outcome(lambda: go.send(handle, 7))

    def start() -> None:
        senders.append(Beside(send))
        assert began.wait(30)

    with once_at("turn.in_transaction", start):
        run()
    assert senders[0].join() == "told"
    assert handle.result(timeout=0) == []
    assert Message.objects.count() == 0


def test_o32_after_the_commit_the_sender_is_told(pump: Pump) -> None:
    handle, run = last_turn(pump, reading_all)
    with once_at("turn.after_commit", lambda: Beside(lambda: outcome(lambda: go.send(handle, 7))).join()) as answers:
        run()
    assert answers == ["told"]
    assert (handle.result(timeout=0), Message.objects.count()) == ([], 0)


@pytest.mark.server  # SQLite has one writer at a time
def test_o32_a_sender_that_has_not_committed_yet_keeps_the_instance_open(pump: Pump) -> None:
    handle, run = last_turn(pump, reading_all)
    stored, tried = threading.Event(), threading.Event()

    def send() -> str:
        with transaction.atomic():
            go.send(handle, 7)
            stored.set()
            assert tried.wait(30)
        return "accepted"

    sender = Beside(send)
    assert stored.wait(30)
    commits: list[float] = []

    def reach(name: str) -> None:
        if name == "turn.before_commit":
            commits.append(time.monotonic())
            if len(commits) == 2:  # the first one did not go through
                tried.set()

    faults.set_hook(reach)
    run()
    faults.set_hook(None)
    assert sender.join() == "accepted"
    pump.finish()
    assert handle.result(timeout=0) == [7]


def test_o32_a_process_that_dies_before_the_commit_leaves_the_instance_open_for_it(pump: Pump) -> None:
    handle, run = last_turn(pump, reading_all)
    pump.kill_at("turn.in_transaction")
    pump.deliver(pump.queue[0])
    assert handle.status != "COMPLETED"
    go.send(handle, 7)
    run()
    assert handle.result(timeout=0) == [7]


def test_o32_an_instance_that_only_takes_back_what_it_did_has_ended_for_senders(pump: Pump) -> None:
    handle = undoing.start()
    told: list[str] = []

    def reach(name: str) -> None:
        if name == "claim.before" and handle.status == "COMPENSATING" and not told:
            told.append(outcome(lambda: go.send(handle, 1)))

    faults.set_hook(reach)
    pump.finish()
    faults.set_hook(None)
    assert told == ["told"]
    assert (handle.status, Message.objects.count()) == ("FAILED", 0)


# -- nobody read it ----------------------------------------------------------------------------------------------------


def test_o32_what_was_accepted_and_not_read_at_the_end_is_listed(pump: Pump, admin_client: Any) -> None:
    handle, run = last_turn(pump, reading_none)
    handle.signal("early", {"n": 1})
    with once_at("turn.before_commit", lambda: handle.signal("late", {"n": 2}, signal_id="webhook-9")):
        run()
    assert handle.result(timeout=0) == "done"
    unread = Message.objects.filter(chain_id=handle.id, delivered_turn__isnull=True).order_by("id")
    assert list(unread.values_list("name", flat=True)) == ["early", "late"]

    page = admin_client.get(reverse("admin:durable_celery_workflowinstance_change", args=[handle.id]))
    shown = [(message.name, message.unread) for message in page.context["page"].messages]
    assert shown == [("early", True), ("late", True)]
    assert page.content.decode().count("unread") >= 2
    assert "webhook-9" in page.content.decode()

    out = StringIO()
    call_command("durable", "show", handle.id, "--json", stdout=out)
    told = json.loads(out.getvalue())["unread"]
    assert [(message["name"], message["payload"]) for message in told] == [("early", {"n": 1}), ("late", {"n": 2})]
    out = StringIO()
    call_command("durable", "show", handle.id, stdout=out)
    assert "unread" in out.getvalue()
    assert "late" in out.getvalue()


def test_o32_what_was_read_is_not_listed(pump: Pump, admin_client: Any) -> None:
    handle, run = last_turn(pump, reading_all)
    go.send(handle, 1)
    run()
    assert handle.result(timeout=0) == [1]
    page = admin_client.get(reverse("admin:durable_celery_workflowinstance_change", args=[handle.id]))
    assert [message.unread for message in page.context["page"].messages] == [False]
    out = StringIO()
    call_command("durable", "show", handle.id, "--json", stdout=out)
    assert json.loads(out.getvalue())["unread"] == []


def test_o32_a_flood_at_the_end_is_read_or_told_and_never_ignored(pump: Pump) -> None:
    handle, run = last_turn(pump, reading_all)
    accepted: list[int] = []
    stop = threading.Event()

    def flood() -> None:
        for number in range(60):
            if stop.is_set() or outcome(lambda number=number: go.send(handle, number)) == "told":
                return
            accepted.append(number)

    sender = Beside(flood)
    run()
    stop.set()
    sender.join()
    pump.finish()
    turns.advance(WorkflowInstance.objects.get().pk)
    assert handle.result(timeout=0) == accepted
    assert Message.objects.count() == len(accepted)
