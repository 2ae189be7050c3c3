"""Children whole: started with their parent's turn, ended with its row, over the real database."""

from __future__ import annotations

from datetime import timedelta
from random import Random
from typing import Any

import pytest

from django_app.models import StepResult, WorkflowInstance
from durable_celery import (
    CancelRequested,
    ChildFailed,
    KeyConflict,
    Signal,
    Workflow,
    WorkflowFailed,
    WorkflowHandle,
    WorkflowTimedOut,
    continue_as_new,
    current_workflow,
    gather,
    get_handle,
    race,
    sleep,
    spawn,
    step,
    workflow,
)
from durable_celery.registry import registry
from tests.pump import Pump, release


class CardDeclined(Exception):
    def __init__(self, code: int, *, hint: str) -> None:
        super().__init__(f"declined with {code}")
        self.code = code


@step(name="children.double", retry=None)
def double(number: int) -> int:
    return number * 2


@step(name="children.charge", retry=None)
def charge(number: int) -> int:
    raise CardDeclined(number, hint="try another")


@workflow(name="children.doubling")
def doubling(number: int) -> Workflow[int]:
    return (yield from double(number))


@workflow(name="children.charging")
def charging(number: int) -> Workflow[int]:
    return (yield from charge(number))


@workflow(name="children.one")
def one(number: int) -> Workflow[int]:
    return (yield from doubling(number)) + 1


@workflow(name="children.many")
def many(count: int) -> Workflow[list[int]]:
    return list((yield from gather(*[doubling(number) for number in range(count)])))


@workflow(name="children.declined")
def declined(number: int) -> Workflow[Any]:
    try:
        yield from charging(number)
    except ChildFailed as error:
        return [error.workflow, error.position, error.child_status, error.matches(CardDeclined)]
    return None


@workflow(name="children.passing_on")
def passing_on(number: int) -> Workflow[int]:
    return (yield from charging(number))


@workflow(name="children.passing_on_again")
def passing_on_again(number: int) -> Workflow[int]:
    return (yield from passing_on(number))


def test_a_child_runs_and_its_result_is_the_value(pump: Pump) -> None:
    handle = one.start(4)
    pump.drain()
    assert handle.result(timeout=0) == 9
    child = WorkflowInstance.objects.get(name="children.doubling")
    assert (str(child.parent_id), child.parent_position, str(child.root_id)) == (handle.run_id, "1", handle.id)
    (row,) = handle.history()
    assert (row.kind, row.name, row.state, row.args, row.result) == (
        "child", "children.doubling", "SUCCEEDED", ((4,), {}), 8,
    )  # fmt: skip


def test_many_children_wake_their_parent_once(pump: Pump) -> None:
    handle = many.start(100)
    pump.drain()
    assert handle.result(timeout=0) == [2 * number for number in range(100)]
    hints = [hint for hint in pump.sent if str(hint.instance) == handle.id]
    assert len(hints) == 2  # its start, and the end of its last child
    assert WorkflowInstance.objects.get(pk=handle.id).turn == 2


def test_the_error_of_a_step_is_matched_at_every_level(pump: Pump) -> None:
    assert declined.start(5).created
    handle = declined.start(7)
    deep = passing_on_again.start(7)
    pump.drain()
    assert handle.result(timeout=0) == ["children.charging", "1", "FAILED", True]
    with pytest.raises(WorkflowFailed) as caught:
        deep.result(timeout=0)
    error = caught.value
    assert error.matches(CardDeclined)
    assert error.matches(ChildFailed)
    assert not error.matches(ValueError)
    assert error.causes[-1].attributes == {"code": 7}
    assert str(error.causes[-1]) == "CardDeclined: declined with 7"
    assert StepResult.objects.filter(kind="child", state="FAILED").count() == 4


# -- down and up -------------------------------------------------------------------------------------------------------


go = Signal("go", str)


@workflow(name="children.waiting")
def waiting(name: str) -> Workflow[str]:
    try:
        return (yield from go.wait())
    except CancelRequested as asked:
        yield from note(f"{name}: {asked.reason}")
        raise


@workflow(name="children.parent")
def parent(close: str, then: str) -> Workflow[Any]:
    if then == "win":
        won = yield from race(child=waiting.using(parent_close=close)("c"), late=sleep(60))
        return won.name
    return (yield from waiting.using(parent_close=close)("c"))


@step(name="children.note", retry=None)
def note(text: str) -> None:
    noted.append(text)


noted: list[str] = []


@pytest.fixture(autouse=True)
def nothing_noted() -> None:
    noted.clear()


def child_of(handle: WorkflowHandle[Any]) -> WorkflowInstance:
    found: WorkflowInstance = WorkflowInstance.objects.get(parent_id=handle.id)
    return found


@pytest.mark.parametrize(
    ("close", "state", "said"),
    [
        ("cancel", "CANCELLED", ["c: its parent ended TERMINATED"]),
        ("terminate", "TERMINATED", []),
        ("abandon", "WAITING", []),
    ],
)
def test_what_becomes_of_a_child_when_its_parent_is_terminated(
    pump: Pump, close: str, state: str, said: list[str]
) -> None:
    handle = parent.start(close, "wait")
    pump.drain()
    handle.terminate("stop")
    pump.drain()
    assert handle.status == "TERMINATED"
    assert child_of(handle).state == state
    assert noted == said
    assert not pump.ready()


@pytest.mark.parametrize(
    ("close", "state"), [("cancel", "CANCELLED"), ("terminate", "TERMINATED"), ("abandon", "COMPLETED")]
)
def test_what_becomes_of_a_child_when_its_parent_fails(pump: Pump, close: str, state: str) -> None:
    handle = spawning.start(close)
    pump.drain()
    assert handle.status == "FAILED"
    if close == "abandon":
        assert child_of(handle).state == "WAITING"
        go.send(child_of(handle), "on")
        pump.drain()
    assert child_of(handle).state == state
    (row,) = StepResult.objects.filter(instance_id=handle.run_id, kind="child")
    assert row.abandoned
    assert row.taken_turn is None
    assert row.state == {"CANCELLED": "CANCELLED", "TERMINATED": "FAILED", "COMPLETED": "SUCCEEDED"}[state]
    assert row.look_at is None


@workflow(name="children.spawning")
def spawning(close: str) -> Workflow[None]:
    yield from spawn(waiting.using(parent_close=close)("c"))
    yield from charge(1)


def test_a_cancel_goes_down_and_the_parent_ends_after_its_child(pump: Pump) -> None:
    handle = grandparent.start()
    pump.drain()
    assert handle.cancel("enough") == "requested"
    pump.drain()
    states = dict(WorkflowInstance.objects.values_list("name", "state"))
    assert set(states.values()) == {"CANCELLED"}
    assert noted == ["c: its parent was asked to end: its parent was asked to end: enough"]
    ends = WorkflowInstance.objects.in_bulk()
    child = next(i for i in ends.values() if i.name == "children.waiting")
    assert str(child.root_id) == handle.id
    assert handle.history()[0].state == "CANCELLED"


@workflow(name="children.grandparent")
def grandparent() -> Workflow[str]:
    return (yield from parent("cancel", "wait"))


def test_terminate_goes_down_through_generations(pump: Pump) -> None:
    handle = terminating.start()
    pump.drain()
    handle.terminate()
    pump.drain()
    assert set(WorkflowInstance.objects.values_list("state", flat=True)) == {"TERMINATED"}
    assert noted == []


@workflow(name="children.terminating")
def terminating() -> Workflow[Any]:
    return (yield from parent.using(parent_close="terminate")("terminate", "wait"))


def test_a_child_that_lost_a_race_is_cancelled_and_its_end_is_kept(pump: Pump) -> None:
    handle = parent.start("abandon", "win")
    pump.advance_time(61)
    assert handle.result(timeout=0) == "late"
    assert child_of(handle).state == "CANCELLED"
    assert noted == ["c: its parent does not need it any more"]
    row = StepResult.objects.get(instance_id=handle.run_id, kind="child")
    assert (row.state, row.abandoned, row.taken_turn) == ("CANCELLED", True, None)


def test_a_child_that_is_terminated_fails_its_parent(pump: Pump) -> None:
    handle = parent.start("cancel", "wait")
    pump.drain()
    get_handle(child_of(handle).pk).terminate("gone mad")
    pump.drain()
    with pytest.raises(WorkflowFailed, match="is TERMINATED: Terminated: gone mad") as caught:
        handle.result(timeout=0)
    assert caught.value.matches(ChildFailed)


def test_a_child_over_its_time_is_an_error_of_the_parent(pump: Pump) -> None:
    handle = hurrying.start()
    pump.drain()
    assert child_of(handle).deadline_at == child_of(handle).start_at + timedelta(seconds=60)
    pump.advance_time(61)
    assert handle.result(timeout=0) == ["FAILED", True, True]


@workflow(name="children.hurrying")
def hurrying() -> Workflow[Any]:
    try:
        yield from waiting.using(execution_timeout=60)("c")
    except ChildFailed as error:
        return [error.child_status, error.timed_out, error.matches(WorkflowTimedOut)]
    return None


def test_a_parent_over_its_time_takes_its_child_with_it(pump: Pump) -> None:
    handle = parent.using(execution_timeout=60).start("cancel", "wait")
    pump.drain()
    pump.advance_time(61)
    assert handle.status == "FAILED"
    assert child_of(handle).state == "CANCELLED"
    assert noted == ["c: its parent was asked to end: execution_timeout is over"]


def test_a_blocked_child_is_ended_with_its_parent(pump: Pump) -> None:
    handle = of_broken.start()
    pump.drain()
    assert child_of(handle).state == "BLOCKED"
    handle.cancel()
    pump.drain()
    assert (handle.status, child_of(handle).state) == ("CANCELLED", "CANCELLED")


@workflow(name="children.broken")
def broken() -> Workflow[None]:
    yield from double(1)
    raise ValueError("a bug")


@workflow(name="children.of_broken")
def of_broken() -> Workflow[None]:
    yield from broken()


def test_a_handle_gives_its_child_up(pump: Pump) -> None:
    handle = giving_up.start()
    pump.advance_time(61)
    assert handle.result(timeout=0) == [True, "children.waiting", "2.0", "CANCELLED", True]
    assert noted == ["c: its parent does not need it any more"]
    assert child_of(handle).state == "CANCELLED"


def test_a_cancel_of_the_body_leaves_a_spawned_child_running_until_its_end(pump: Pump) -> None:
    handle = leaving.start()
    pump.drain()
    handle.cancel()
    pump.drain()
    assert handle.status == "WAITING"  # for its cleanup
    assert child_of(handle).state == "WAITING"
    pump.advance_time(61)
    assert handle.status == "CANCELLED"
    assert child_of(handle).state == "CANCELLED"
    assert noted == ["c: its parent ended CANCELLED"]


@workflow(name="children.giving_up")
def giving_up() -> Workflow[Any]:
    yield from sleep(1)
    work = yield from spawn(waiting("c"))
    yield from sleep(60)
    stopped = yield from work.cancel()
    try:
        yield from work
    except ChildFailed as error:
        return [stopped, error.workflow, error.position, error.child_status, error.cancelled]
    return None


@workflow(name="children.leaving")
def leaving() -> Workflow[Any]:
    work = yield from spawn(waiting("c"))
    try:
        yield from work
    finally:
        yield from sleep(60)


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


# -- lost and doubled --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(12))
def test_hints_may_be_lost_doubled_and_reordered(pump: Pump, seed: int) -> None:
    dice = Random(seed)
    pump.fate = lambda hint: dice.choice([(), (0.0,), (0.0, 0.5), (3.0,)])
    pump.choose = lambda ready: dice.randrange(len(ready))
    handle = many.start(5)
    deep = passing_on_again.start(3)
    pump.finish()
    assert handle.result(timeout=0) == [0, 2, 4, 6, 8]
    assert deep.status == "FAILED"
    assert WorkflowInstance.objects.filter(parent_id=handle.id).count() == 5


@pytest.mark.parametrize(
    "point", ["turn.children_in_transaction", "turn.in_transaction", "turn.after_commit", "publish.before"]
)
@pytest.mark.parametrize("nth", [1, 2, 3])
def test_a_process_may_die_anywhere(pump: Pump, point: str, nth: int) -> None:
    pump.kill_at(point, nth)
    handle = many.start(3)
    pump.finish()
    assert handle.result(timeout=0) == [0, 2, 4]
    assert WorkflowInstance.objects.filter(parent_id=handle.id).count() == 3


def test_without_hints_the_clock_does_it_with_few_turns(pump: Pump) -> None:
    handle = many.start(10)
    pump.drain()
    waiting_ones = slow_many.start(10)
    pump.drain()
    children = list(WorkflowInstance.objects.filter(parent_id=waiting_ones.id).order_by("parent_position"))
    for child in children:
        go.send(child, "on")
        pump.drain()
        pump.advance_time(10)
    assert waiting_ones.result(timeout=0) == ["on"] * 10
    assert WorkflowInstance.objects.get(pk=waiting_ones.id).turn == 2
    assert handle.status == "COMPLETED"


@workflow(name="children.slow_many")
def slow_many(count: int) -> Workflow[list[str]]:
    return list((yield from gather(*[waiting(str(number)) for number in range(count)])))
