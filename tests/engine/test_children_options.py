"""Children over runs, and with keys, options and context of their own."""

from __future__ import annotations

from typing import Any

import pytest

from django_app.models import WorkflowInstance
from durable_celery import (
    ChildFailed,
    KeyConflict,
    Workflow,
    continue_as_new,
    current_workflow,
    gather,
    get_handle,
    workflow,
)
from durable_celery.registry import registry
from tests.engine.children import (
    child_of,
    double,
    doubling,
    go,
    nothing_noted,  # noqa: F401
    one,
    waiting,
)
from tests.pump import Pump, release

# -- runs that go on as new ones ---------------------------------------------------------------------------------------


@workflow(name="children.counting_down")
def counting_down(number: int) -> Workflow[str]:
    if number == 0:
        return (yield from go.wait())
    yield from double(number)
    return (yield from continue_as_new(number - 1))


@workflow(name="children.of_counting")
def of_counting(close: str) -> Workflow[str]:
    return (yield from counting_down.using(parent_close=close)(3))


@workflow(name="children.going_on")
def going_on(number: int) -> Workflow[Any]:
    if number:
        return (yield from continue_as_new(number - 1))
    return (yield from telling.using(signal=(go, "hello"))())


def test_a_child_is_followed_through_its_runs(pump: Pump) -> None:
    handle = of_counting.start("cancel")
    pump.drain()
    runs = list(WorkflowInstance.objects.filter(parent_id=handle.run_id).order_by("run_number"))
    assert [run.state for run in runs] == ["CONTINUED"] * 3 + ["WAITING"]
    assert {(run.parent_position, run.chain_id) for run in runs} == {("1", runs[0].pk)}
    assert str(runs[0].pk) in handle.waiting_for
    go.send(get_handle(runs[0].pk), "on")
    pump.drain()
    assert handle.result(timeout=0) == "on"


@pytest.mark.parametrize(("close", "state"), [("cancel", "CANCELLED"), ("terminate", "TERMINATED")])
def test_the_newest_run_of_a_child_ends_with_its_parent(pump: Pump, close: str, state: str) -> None:
    handle = of_counting.start(close)
    pump.drain()
    handle.terminate()
    pump.drain()
    runs = WorkflowInstance.objects.filter(parent_id=handle.run_id).order_by("run_number")
    assert list(runs.values_list("state", flat=True)) == ["CONTINUED"] * 3 + [state]


def test_a_parent_that_went_on_has_children_of_its_newest_run_and_one_id(pump: Pump) -> None:
    handle = going_on.start(2)
    pump.drain()
    assert handle.run_id != handle.id
    assert handle.result(timeout=0) == [handle.id, None, "hello"]
    assert WorkflowInstance.objects.filter(parent_id=handle.run_id).count() == 1


# -- keys, options, context --------------------------------------------------------------------------------------------


def test_a_key_that_is_taken_is_a_failure_of_the_child(pump: Pump) -> None:
    first = waiting.using(key="k").start("other")
    handle = keyed.start("fail")
    pump.drain()
    assert handle.result(timeout=0) == ["children.waiting", "1", "", "", True]
    assert WorkflowInstance.objects.filter(parent_id=handle.id).count() == 0
    assert first.status == "WAITING"


def test_a_child_may_end_the_one_that_has_its_key(pump: Pump) -> None:
    first = waiting.using(key="k").start("other")
    handle = keyed.start("terminate_existing")
    pump.drain()
    assert first.status == "TERMINATED"
    go.send(waiting.get(key="k"), "on")
    pump.drain()
    assert handle.result(timeout=0) == "on"


def test_two_children_of_one_turn_cannot_have_one_key(pump: Pump) -> None:
    handle = twins.start()
    pump.drain()
    go.send(waiting.get(key="k"), "on")
    pump.drain()
    good, bad = handle.result(timeout=0)
    assert good == "on"
    assert bad.startswith("child children.waiting at 1.1: KeyConflict: key 'k' of workflow children.waiting is taken")


def test_the_same_key_is_free_for_the_next_child(pump: Pump) -> None:
    handle = one_after_the_other.start()
    pump.drain()
    assert handle.result(timeout=0) == [2, 4]


@workflow(name="children.keyed")
def keyed(conflict: str) -> Workflow[Any]:
    try:
        return (yield from waiting.using(key="k", conflict=conflict)("c"))
    except ChildFailed as error:
        known = [error.workflow, error.position, error.child_id, error.child_status]
        return [*known, error.matches(KeyConflict)]


@workflow(name="children.twins")
def twins() -> Workflow[Any]:
    pair = [waiting.using(key="k", conflict="terminate_existing")("c") for _ in range(2)]
    good, bad = yield from gather(*pair, return_exceptions=True)
    return [good, str(bad)]


@workflow(name="children.one_after_the_other")
def one_after_the_other() -> Workflow[Any]:
    first = yield from doubling.using(key="k")(1)
    second = yield from doubling.using(key="k")(2)
    return [first, second]


def test_what_is_asked_for_stands_in_its_row_and_it_sees_its_parent(pump: Pump) -> None:
    handle = with_options.start()
    pump.drain()
    child = child_of(handle)
    assert (child.queue, child.priority, child.key, child.memo) == ("vip", 7, "k", {"m": 1})
    assert (child.attributes, child.subject_type, child.subject_id) == ({"a": [1]}, "shop.order", "5")
    assert (child.version, child.parent_close) == (1, "abandon")
    assert handle.result(timeout=0) == [handle.id, "k", "hello"]
    assert [hint.queue for hint in pump.sent if hint.instance == child.pk] == ["vip"]


@workflow(name="children.telling")
def telling() -> Workflow[Any]:
    word = yield from go.wait()
    info = current_workflow()
    return [info.parent_id, info.key, word]


@workflow(name="children.with_options")
def with_options() -> Workflow[Any]:
    options: Any = {"parent_close": "abandon", "subject": ("shop.Order", "5"), "signal": (go, "hello")}
    return (
        yield from telling.using(
            key="k", queue="vip", priority=7, attributes={"a": [1]}, memo={"m": 1}, **options
        )()
    )  # fmt: skip


def test_a_child_lives_in_the_context_of_its_parent(pump: Pump) -> None:
    handle = one.start(1)
    WorkflowInstance.objects.update(context={"nobody": "knows"})
    pump.drain()
    assert handle.result(timeout=0) == 3
    assert child_of(handle).context == {"nobody": "knows"}


def test_it_starts_later_if_asked_to(pump: Pump) -> None:
    handle = later.start()
    pump.drain()
    assert child_of(handle).state == "PENDING"
    assert f"child children.doubling at 1 ({child_of(handle).pk}), since" in handle.waiting_for
    pump.advance_time(3601)
    assert handle.result(timeout=0) == 8


@workflow(name="children.later")
def later() -> Workflow[int]:
    return (yield from doubling.using(start_delay=3600)(4))


def test_a_child_this_process_does_not_know_waits_for_one_that_does(pump: Pump) -> None:
    gone = release("children.gone", doubling.body)
    handle = release("children.of_gone", lambda: (yield gone(4))).start()
    pump.deliver(pump.ready()[0])
    known = dict(registry._workflows)
    del registry._workflows["children.gone", 1]
    pump.drain()
    child = child_of(handle)
    assert (child.state, child.attempt if hasattr(child, "attempt") else 0) == ("PENDING", 0)
    assert child.waiting_for.startswith("a worker that knows workflow 'children.gone' version 1")
    assert handle.status == "WAITING"
    registry._workflows.update(known)
    pump.advance_time(40)
    assert handle.result(timeout=0) == 8
