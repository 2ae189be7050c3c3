"""fork: a new run keeps what was before a position and runs the rest."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from django_app.models import WorkflowInstance
from durable_celery import (
    StepFailed,
    Workflow,
    gather,
    get_handle,
    map_step,
    now,
    patched,
    poll,
    set_attributes,
    side_effect,
    sleep,
    spawn,
    uuid4,
)
from durable_celery.errors import BadValue, InstanceNotFound, NotRetryable
from tests.engine.repair_steps import (
    broken,
    clean,  # noqa: F401
    do,
    go,
    other,
    ran,
    shown,
    three,
    version,
)
from tests.pump import Pump, release

pytestmark = pytest.mark.engine


def draw() -> int:
    ran.append("drawn")
    return len(ran)


def long_life() -> Workflow[Any]:
    token = uuid4()
    first = yield from do("a")
    drawn = side_effect(draw)
    set_attributes(stage="asked")
    answer = yield from go.wait(timeout=timedelta(days=1))
    second = yield from do("b")
    yield from sleep(60)
    third = yield from do("c")
    return str(token), first, drawn, answer, second, third, now().isoformat()


def finished(pump: Pump, body: Callable[..., Any] = long_life, *args: Any) -> Any:
    handle = version(body).using(key="repair-fork", attributes={"shop": 1}).start(*args)
    pump.drain()
    go.send(handle, "yes", signal_id="hook-1")
    pump.finish()
    assert handle.status == "COMPLETED"
    return handle


@pytest.mark.parametrize(
    ("position", "runs"),
    [("1", ["a", "drawn"]), ("2", []), ("3", ["b", "c"]), ("4", ["c"]), ("5", ["c"])],
)
def test_a_fork_keeps_what_was_before_and_runs_the_rest(pump: Pump, position: str, runs: list[str]) -> None:
    handle = finished(pump)
    value = handle.result(timeout=0)
    history = shown(handle)
    ran.clear()
    fork = handle.fork(position)
    assert fork.created
    assert fork.id != handle.id
    pump.finish() if position not in ("1", "2") else pump.drain()
    if position in ("1", "2"):
        assert fork.status == "WAITING"
        go.send(fork, "yes", signal_id="hook-1")
        pump.finish()
        runs = [*runs, "b", "c"]
    assert ran == runs
    again_ = fork.result(timeout=0)
    same = slice(1, 6) if position == "1" else slice(0, 6)
    if position == "1":
        assert (again_[1], again_[3:6]) == (value[1], value[3:6])
    else:
        assert again_[same] == value[same]
    assert shown(handle) == history
    assert [line.split()[:4] for line in shown(fork)] == [line.split()[:4] for line in history]


def test_a_fork_is_an_instance_of_its_own(pump: Pump) -> None:
    handle = finished(pump)
    fork = handle.fork("4.7")
    row = WorkflowInstance.objects.get(pk=fork.id)
    origin = WorkflowInstance.objects.get(pk=handle.id)
    assert (row.key, row.parent_id, row.chain_id, row.run_number) == (None, None, row.pk, 1)
    assert (row.name, row.version, row.args, row.context) == (
        origin.name, origin.version, origin.args, origin.context
    )  # fmt: skip
    assert row.attributes == {"shop": 1, "stage": "asked"} == origin.attributes
    assert row.memo == {"forked_from": handle.id, "forked_at": "4.7"}
    assert row.history_length == 3
    pump.finish()
    assert fork.status == "COMPLETED"


def test_a_fork_follows_the_code_it_is_made_with(pump: Pump) -> None:
    def fixed() -> Workflow[Any]:
        first = yield from do("a")
        second = yield from other("b")
        return first, second

    handle = version(three).start()
    pump.finish()
    version(fixed)
    ran.clear()
    fork = handle.fork("2")
    pump.finish()
    assert fork.result(timeout=0) == ("A", "B")
    assert ran == ["other b"]


def test_a_blocked_instance_is_forked_before_its_mismatch(pump: Pump) -> None:
    def after() -> Workflow[Any]:
        first = yield from do("a")
        return first, (yield from other("x"))

    handle = version(waiting_third).start()
    pump.drain()
    version(after)
    go.send(handle, 1)
    pump.drain()
    assert handle.status == "BLOCKED"
    with pytest.raises(NotRetryable, match=r"does not fit what instance .* has recorded before 3"):
        handle.fork("3")
    fork = handle.fork("2")
    pump.finish()
    assert fork.result(timeout=0) == ("A", "X")
    assert handle.status == "BLOCKED"


def waiting_third() -> Workflow[Any]:
    yield from do("a")
    yield from do("b")
    yield from go.wait(timeout=timedelta(days=1))


def test_a_fork_before_the_end_of_a_gather_keeps_its_members(pump: Pump) -> None:
    def body() -> Workflow[Any]:
        both = yield from gather(do("a"), gather(do("b"), do("c"), limit=1))
        return both, (yield from do("d"))

    handle = version(body).start()
    pump.finish()
    ran.clear()
    fork = handle.fork("2")
    pump.finish()
    assert fork.result(timeout=0) == handle.result(timeout=0)
    assert ran == ["d"]


def test_a_failed_run_goes_on_in_a_fork_after_its_failure_is_mended(pump: Pump) -> None:
    def body() -> Workflow[Any]:
        try:
            yield from do("a")
        except StepFailed as error:
            return f"gave up: {error.message}"
        return "went well"

    broken.add("a")
    handle = version(body).start()
    pump.finish()
    broken.clear()
    fork = handle.fork("1")
    pump.finish()
    assert (handle.result(timeout=0), fork.result(timeout=0)) == ("gave up: a is broken", "went well")


def test_a_cancelled_run_is_forked_with_its_cancel(pump: Pump) -> None:
    def body() -> Workflow[Any]:
        try:
            yield from do("a")
            yield from go.wait(timeout=timedelta(days=1))
        finally:
            yield from do("tidy up")

    handle = version(body).start()
    pump.drain()
    handle.cancel("enough")
    pump.finish()
    assert handle.status == "CANCELLED"
    ran.clear()
    before_it, after_it = handle.fork("2"), handle.fork("3")
    pump.drain()
    assert (before_it.status, after_it.status) == ("WAITING", "CANCELLED")
    assert ran == ["tidy up"]


def test_a_patch_decided_before_a_fork_stays_decided(pump: Pump) -> None:
    def plain() -> Workflow[Any]:
        yield from do("a")
        return (yield from do("b"))

    def changed() -> Workflow[Any]:
        yield from do("a")
        first = patched("repair-one")
        yield from do("b")
        return first, patched("repair-two")

    old = version(plain).start()
    pump.finish()
    new = version(changed).start()
    pump.finish()
    forks = [old.fork("2"), new.fork("2")]
    pump.finish()
    assert [fork.result(timeout=0) for fork in (new, *forks)] == [(True, True)] * 3
    assert ran == ["a", "b", "a", "b", "b", "b"]


def test_what_never_was_is_not_forked(pump: Pump) -> None:
    handle = version(three).start()
    pump.finish()
    count = WorkflowInstance.objects.count()
    with pytest.raises(BadValue, match="never came to position 4; it asked for 3 commands so far"):
        handle.fork("4")
    for wrong in ("", "0", "2~", None, 3):
        with pytest.raises(BadValue, match="is not allowed"):
            handle.fork(wrong)
    with pytest.raises(InstanceNotFound):
        get_handle("00000000-0000-7000-8000-000000000001").fork("1")
    assert WorkflowInstance.objects.count() == count


def test_a_fork_of_an_open_run_leaves_it_alone_and_its_hint_may_be_lost(pump: Pump) -> None:
    handle = version(waiting_third).start()
    pump.drain()
    pump.down = True
    fork = handle.fork("2")
    pump.down = False
    pump.advance_time(seconds=10)
    assert (handle.status, fork.status) == ("WAITING", "WAITING")
    assert ran == ["a", "b", "b"]
    fork.cancel()
    pump.drain()
    assert (handle.status, fork.status) == ("WAITING", "CANCELLED")


def test_a_fork_of_a_fork_replays_the_same_uuids(pump: Pump) -> None:
    def body() -> Workflow[Any]:
        yield from do(str(uuid4()))
        yield from do("b")
        return str(uuid4()), (yield from do("c"))

    handle = version(body).start()
    pump.finish()
    fork = handle.fork("3")
    pump.finish()
    second = fork.fork("3")
    pump.finish()
    assert second.result(timeout=0) == fork.result(timeout=0) == handle.result(timeout=0)


def test_a_fork_right_after_a_map_keeps_its_members(pump: Pump) -> None:
    def body() -> Workflow[Any]:
        many = yield from map_step(do, ["a", "b", "c"], limit=2)
        return many, (yield from do("d"))

    handle = version(body).start()
    pump.finish()
    ran.clear()
    first, second = handle.fork("2"), handle.fork("1")
    pump.finish()
    assert first.result(timeout=0) == second.result(timeout=0) == handle.result(timeout=0)
    assert sorted(ran) == ["a", "b", "c", "d", "d"]


def test_a_fork_keeps_the_result_of_a_poll_and_of_a_child(pump: Pump) -> None:
    def small() -> Workflow[Any]:
        return (yield from do("child"))

    child = release("repair.child", small)

    def body() -> Workflow[Any]:
        seen = yield from poll(do("poll"), until=bool, every=1)
        got = yield from child()
        return seen, got, (yield from do("d"))

    handle = version(body).start()
    pump.finish()
    ran.clear()
    fork = handle.fork("3")
    pump.finish()
    assert fork.result(timeout=0) == handle.result(timeout=0) == ("POLL", "CHILD", "D")
    assert ran == ["d"]


def test_a_child_that_is_still_open_stays_with_its_parent_and_the_fork_starts_its_own(pump: Pump) -> None:
    def small() -> Workflow[Any]:
        return (yield from go.wait(timeout=60))

    child = release("repair.child", small)

    def body() -> Workflow[Any]:
        work = yield from spawn(child())
        yield from do("a")
        yield from do("b")
        return (yield from work)

    handle = version(body).start()
    pump.drain()
    fork = handle.fork("3")
    pump.drain()
    assert WorkflowInstance.objects.filter(parent_id__in=[handle.id, fork.id]).count() == 2
    go.send(WorkflowInstance.objects.get(parent_id=fork.id).pk, "for the fork")
    pump.drain()
    assert (fork.result(timeout=0), handle.status) == ("for the fork", "WAITING")
