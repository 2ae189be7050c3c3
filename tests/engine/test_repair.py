"""skip, retry_step and fork: what they do to a run, what they refuse, and that nothing runs twice."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from django.db import transaction

from django_app.models import StepAttempt, WorkflowInstance
from durable_celery import (
    CompleteLater,
    RetryPolicy,
    Signal,
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
    step,
    uuid4,
)
from durable_celery.engine import turns
from durable_celery.errors import BadValue, InstanceNotFound, NotRetryable, StepClosed
from tests.pump import Pump, release

pytestmark = pytest.mark.engine

ran: list[str] = []
broken: set[str] = set()
meanwhile: dict[str, Callable[[], Any]] = {}
go = Signal("repair.go")


@step(name="repair.do", retry=None)
def do(what: str) -> str:
    ran.append(what)
    if what in meanwhile:
        meanwhile.pop(what)()
    if what in broken:
        raise ValueError(f"{what} is broken")
    return what.upper()


@step(name="repair.other", retry=None)
def other(what: str) -> str:
    ran.append(f"other {what}")
    return what.title()


@step(name="repair.again", retry=RetryPolicy(initial_interval=3600, jitter=False))
def again(what: str) -> str:
    ran.append(what)
    if what in broken:
        raise ValueError(f"{what} is broken")
    return what.upper()


@step(name="repair.outside")
def outside() -> str:
    raise CompleteLater


@step(name="repair.undo")
def undo(result: Any) -> None:
    ran.append(f"undo {result}")


@pytest.fixture(autouse=True)
def _clean() -> Iterator[None]:
    ran.clear()
    broken.clear()
    meanwhile.clear()
    yield
    meanwhile.clear()


def shown(handle: Any) -> list[str]:
    return [
        f"{entry.position} {entry.kind} {entry.name.rpartition('.')[2]} {entry.state} {entry.result!r}"
        for entry in handle.history()
    ]


def states(handle: Any) -> dict[str, str]:
    return {entry.position: entry.state for entry in handle.history()}


def version(body: Callable[..., Any]) -> Any:
    """The body as the newest release of one workflow."""
    return release("repair.workflow", body)


# -- skip: an open step ------------------------------------------------------------------------------------------------


def waits_outside() -> Workflow[Any]:
    first = yield from outside()
    return first, (yield from do("b"))


def test_a_step_handed_to_the_outside_is_skipped(pump: Pump) -> None:
    handle = version(waits_outside).start()
    pump.drain()
    handle.skip("1", {"by": "hand"})
    pump.finish()
    assert handle.result(timeout=0) == ({"by": "hand"}, "B")


def test_a_step_in_the_queue_is_skipped_and_never_runs(pump: Pump) -> None:
    handle = version(waits_outside).start()
    turns.advance(UUID(handle.id))
    assert states(handle) == {"1": "SCHEDULED"}
    handle.skip("1")
    pump.finish()
    assert handle.result(timeout=0) == (None, "B")
    assert handle.history()[0].attempts == 0


def test_a_step_between_two_attempts_is_skipped(pump: Pump) -> None:
    def body() -> Workflow[Any]:
        return (yield from again("a"))

    broken.add("a")
    handle = version(body).start()
    pump.drain()
    assert states(handle) == {"1": "RETRYING"}
    handle.skip("1", 7)
    pump.drain()
    assert handle.result(timeout=0) == 7
    assert ran == ["a"]


def test_the_late_result_of_a_skipped_attempt_is_superseded(pump: Pump) -> None:
    def body() -> Workflow[Any]:
        return (yield from do("a"))

    handle = version(body).start()
    meanwhile["a"] = lambda: handle.skip("1", "by hand")
    pump.finish()
    assert handle.result(timeout=0) == "by hand"
    late = StepAttempt.objects.get()
    assert (late.outcome, late.result) == ("superseded", '"A"')


def test_what_is_not_open_is_not_skipped(pump: Pump) -> None:
    def body() -> Workflow[Any]:
        yield from do("a")
        yield from go.wait(timeout=60)

    handle = version(body).start()
    pump.drain()
    with pytest.raises(StepClosed, match="is SUCCEEDED already"):
        handle.skip("1", 1)
    with pytest.raises(BadValue, match=r"the signal repair.go, SCHEDULED; expected a step"):
        handle.skip("2", 1)
    with pytest.raises(BadValue, match="has nothing at position '3'"):
        handle.skip("3", 1)
    for wrong in ("", "0", "x", "1.", "1..2", 1, "1!1"):
        with pytest.raises(BadValue, match="is not allowed, expected one such as '3' or"):
            handle.skip(wrong, 1)
    pump.finish()
    with pytest.raises(InstanceNotFound):
        get_handle("00000000-0000-7000-8000-000000000001").skip("1")


def test_a_result_that_cannot_be_kept_is_refused_and_nothing_changes(pump: Pump) -> None:
    handle = version(waits_outside).start()
    pump.drain()
    with pytest.raises(Exception, match="result"):
        handle.skip("1", object())
    assert states(handle) == {"1": "EXTERNAL"}


def test_a_rolled_back_skip_has_never_been(pump: Pump) -> None:
    handle = version(waits_outside).start()
    pump.drain()
    with transaction.atomic():
        handle.skip("1", 1)
        transaction.set_rollback(True)
    pump.drain()
    assert states(handle) == {"1": "EXTERNAL"}


# -- skip: a FAILED instance -------------------------------------------------------------------------------------------


def three() -> Workflow[Any]:
    first = yield from do("a")
    second = yield from do("b")
    return first, second, (yield from do("c"))


def test_the_last_failure_is_replaced_by_a_result(pump: Pump) -> None:
    broken.add("b")
    handle = version(three).using(key="repair-1").start()
    pump.finish()
    assert handle.status == "FAILED"
    handle.skip("2", "by hand")
    assert handle.status == "RUNNING"
    pump.finish()
    assert handle.result(timeout=0) == ("A", "by hand", "C")
    assert ran == ["a", "b", "c"]


def test_beside_the_skipped_failure_others_start_afresh(pump: Pump) -> None:
    def body() -> Workflow[Any]:
        return (yield from gather(do("a"), do("b"), do("c")))

    broken.update({"a", "b"})
    handle = version(body).start()
    pump.finish()
    assert handle.status == "FAILED"
    broken.clear()
    handle.skip("1.0", "by hand")
    pump.finish()
    assert handle.result(timeout=0) == ("by hand", "B", "C")
    assert sorted(ran) == ["a", "b", "b", "c"]


def test_a_failure_that_is_not_the_last_is_not_skipped(pump: Pump) -> None:
    def body() -> Workflow[Any]:
        try:
            yield from do("a")
        except StepFailed:
            yield from do("b")

    broken.update({"a", "b"})
    handle = version(body).start()
    pump.finish()
    with pytest.raises(NotRetryable, match=r"is not the last failure, the body went on after it.*fork\('1'\)"):
        handle.skip("1", 1)
    with pytest.raises(BadValue, match="has nothing at position '9'"):
        handle.skip("9", 1)
    assert handle.status == "FAILED"


def test_the_rules_of_retry_hold(pump: Pump) -> None:
    def body() -> Workflow[Any]:
        yield from do("a").compensate_with(undo)
        yield from do("b")

    broken.add("b")
    handle = version(body).start()
    pump.finish()
    assert ran == ["a", "b", "undo A"]
    for act in (lambda: handle.skip("2", 1), lambda: handle.retry_step("2")):
        with pytest.raises(NotRetryable, match="was compensated"):
            act()
    assert handle.status == "FAILED"


def test_a_finished_instance_is_not_repaired(pump: Pump) -> None:
    handle = version(three).start()
    pump.finish()
    with pytest.raises(NotRetryable, match=r"is COMPLETED.*fork\('2'\)"):
        handle.skip("2", 1)
    with pytest.raises(NotRetryable, match="it has its result"):
        handle.retry_step("2")


# -- skip: a body that does not fit ------------------------------------------------------------------------------------


def before() -> Workflow[Any]:
    first = yield from do("a")
    second = yield from again("b")
    return first, second, (yield from do("c"))


def test_a_mismatch_at_the_row_it_waits_for_is_skipped(pump: Pump) -> None:
    def after() -> Workflow[Any]:
        first = yield from do("a")
        second = yield from other("x")
        return first, second, (yield from other("y"))

    broken.add("b")
    handle = version(before).start()
    pump.drain()
    assert states(handle) == {"1": "SUCCEEDED", "2": "RETRYING"}
    version(after)
    go.send(handle, "wake up")
    pump.drain()
    assert handle.status == "BLOCKED"
    handle.skip("2", "by hand")
    pump.finish()
    assert handle.result(timeout=0) == ("A", "by hand", "Y")
    assert ran == ["a", "b", "other y"]
    assert shown(handle) == [
        "1 step do SUCCEEDED 'A'",
        "2 step other SUCCEEDED 'by hand'",
        "2!1 step again CANCELLED None",
        "3 step other SUCCEEDED 'Y'",
    ]


def test_a_mismatch_at_a_row_in_the_past_is_skipped(pump: Pump) -> None:
    def long() -> Workflow[Any]:
        first = yield from do("a")
        second = yield from do("b")
        third = yield from go.wait(timeout=timedelta(days=1))
        return first, second, third, (yield from do("d"))

    def after() -> Workflow[Any]:
        first = yield from do("a")
        second = yield from other("b")
        third = yield from go.wait(timeout=timedelta(days=1))
        return first, second, third, (yield from do("d"))

    handle = version(long).start()
    pump.drain()
    version(after)
    go.send(handle, "went")
    pump.drain()
    assert handle.status == "BLOCKED"
    handle.skip("2", "by hand")
    pump.finish()
    assert handle.result(timeout=0) == ("A", "by hand", "went", "D")
    assert ran == ["a", "b", "d"]
    assert states(handle) == dict.fromkeys(("1", "2", "2!1", "3", "4"), "SUCCEEDED")


def test_a_step_in_place_of_a_gather_that_has_ended(pump: Pump) -> None:
    def long() -> Workflow[Any]:
        yield from do("a")
        yield from gather(do("b"), do("c"))
        return (yield from go.wait(timeout=timedelta(days=1)))

    def after() -> Workflow[Any]:
        yield from do("a")
        both = yield from other("b")
        return both, (yield from go.wait(timeout=timedelta(days=1)))

    handle = version(long).start()
    pump.drain()
    version(after)
    go.send(handle, "went")
    pump.drain()
    assert handle.status == "BLOCKED"
    handle.skip("2", "both")
    pump.finish()
    assert handle.result(timeout=0) == ("both", "went")
    assert list(states(handle)) == ["1", "2", "2!1", "2!1.0", "2!1.1", "3"]


def test_a_step_in_place_of_a_wait_that_a_message_ended_gives_the_message_back(pump: Pump) -> None:
    def long() -> Workflow[Any]:
        yield from go.wait(timeout=timedelta(days=1))
        yield from go.wait(timeout=timedelta(days=1))

    def after() -> Workflow[Any]:
        first = yield from do("a")
        second = yield from go.wait(timeout=timedelta(days=1))
        return first, second, (yield from go.wait(timeout=timedelta(days=1)))

    handle = version(long).start()
    pump.drain()
    go.send(handle, "one")
    pump.drain()
    version(after)
    go.send(handle, "two")
    pump.drain()
    assert handle.status == "BLOCKED"
    handle.skip("1", "by hand")
    pump.finish()
    assert "at position 3: recorded is nothing" in handle.waiting_for
    handle.skip("3", "three")
    pump.finish()
    assert handle.result(timeout=0) == ("by hand", "one", "two")


def test_skipping_goes_on_position_by_position(pump: Pump) -> None:
    def long() -> Workflow[Any]:
        for what in "abc":
            yield from do(what)
        return (yield from go.wait(timeout=timedelta(days=1)))

    def after() -> Workflow[Any]:
        values = []
        for what in "abc":
            values.append((yield from other(what)))
        return values, (yield from go.wait(timeout=timedelta(days=1)))

    handle = version(long).start()
    pump.drain()
    version(after)
    go.send(handle, "went")
    pump.drain()
    for number in (1, 2, 3):
        assert handle.status == "BLOCKED"
        assert f"at position {number}" in handle.waiting_for
        handle.skip(str(number), number)
        pump.finish()
    assert handle.result(timeout=0) == ([1, 2, 3], "went")


def test_a_running_row_set_aside_ends_without_being_heard(pump: Pump) -> None:
    def long() -> Workflow[Any]:
        yield from outside().compensate_with(undo)

    def after() -> Workflow[Any]:
        got = yield from do("a")
        return got, (yield from do("b"))

    handle = version(long).start()
    pump.drain()
    version(after)
    go.send(handle, "wake up")
    pump.drain()
    assert handle.status == "BLOCKED"
    handle.skip("1", "by hand")
    pump.finish()
    assert handle.result(timeout=0) == ("by hand", "B")
    assert states(handle) == {"1": "SUCCEEDED", "1!1": "ABANDONED", "2": "SUCCEEDED"}


def test_what_was_set_aside_is_still_compensated(pump: Pump) -> None:
    def long() -> Workflow[Any]:
        yield from do("a").compensate_with(undo)
        yield from go.wait(timeout=timedelta(days=1))

    def after() -> Workflow[Any]:
        yield from other("x")
        yield from go.wait(timeout=timedelta(days=1))
        yield from do("b")

    broken.add("b")
    handle = version(long).start()
    pump.drain()
    version(after)
    go.send(handle, 1)
    pump.drain()
    handle.skip("1")
    pump.finish()
    assert handle.status == "FAILED"
    assert ran == ["a", "b", "undo A"]
    assert list(states(handle)) == ["1", "1!1", "2", "3", "1!1~"]


def test_a_timer_and_a_signal_are_put_in_place_too(pump: Pump) -> None:
    def long() -> Workflow[Any]:
        yield from outside()

    def after() -> Workflow[Any]:
        return (yield from go.wait(timeout=timedelta(days=1)))

    def later() -> Workflow[Any]:
        yield from sleep(days=1)
        return "slept"

    for body, expected in ((after, "payload"), (later, "slept")):
        handle = version(long).start()
        pump.drain()
        version(body)
        Signal("repair.other").send(handle, "wake up")
        pump.drain()
        assert handle.status == "BLOCKED"
        handle.skip("1", "payload")
        pump.drain()
        assert handle.result(timeout=0) == expected


def test_what_one_result_cannot_stand_for_is_refused(pump: Pump) -> None:
    def long() -> Workflow[Any]:
        yield from do("a")
        yield from go.wait(timeout=timedelta(days=1))

    def side_by_side() -> Workflow[Any]:
        yield from do("a")
        yield from gather(do("b"), do("c"))

    def shorter() -> Workflow[Any]:
        yield from do("a")

    for body, says in (
        (side_by_side, "one result cannot stand for that"),
        (shorter, "no row that a result could stand in"),
    ):
        handle = version(long).start()
        pump.drain()
        version(body)
        go.send(handle, 1)
        pump.drain()
        assert handle.status == "BLOCKED"
        with pytest.raises(NotRetryable, match=says):
            handle.skip("2", 1)
        assert handle.status == "BLOCKED"
        handle.terminate()


# -- retry_step --------------------------------------------------------------------------------------------------------


def test_a_step_that_waits_for_its_next_attempt_is_due_now(pump: Pump) -> None:
    def body() -> Workflow[Any]:
        return (yield from again("a"))

    broken.add("a")
    handle = version(body).start()
    pump.drain()
    began = pump.now
    broken.clear()
    handle.retry_step("1")
    pump.drain()
    assert handle.result(timeout=0) == "A"
    assert pump.now == began
    assert handle.history()[0].attempts == 2


def test_a_lost_hint_of_a_retried_step_is_sent_again(pump: Pump) -> None:
    def body() -> Workflow[Any]:
        return (yield from again("a"))

    broken.add("a")
    handle = version(body).start()
    pump.drain()
    broken.clear()
    pump.down = True
    handle.retry_step("1")
    pump.down = False
    pump.advance_time(seconds=10)
    assert handle.result(timeout=0) == "A"


def test_the_last_failure_of_a_failed_instance_is_tried_again(pump: Pump) -> None:
    broken.add("b")
    handle = version(three).start()
    pump.finish()
    broken.clear()
    handle.retry_step("2")
    pump.finish()
    assert handle.result(timeout=0) == ("A", "B", "C")
    assert ran == ["a", "b", "b", "c"]


@pytest.mark.parametrize("seen", [False, True], ids=["untaken", "taken in"])
def test_a_failed_member_starts_afresh_while_the_others_run(pump: Pump, seen: bool) -> None:
    def body() -> Workflow[Any]:
        return (yield from gather(do("a"), outside(), do("c")))

    broken.add("a")
    handle = version(body).start()
    pump.drain()
    if seen:
        go.send(handle, "a turn takes in what is there")
        pump.drain()
    assert states(handle) == {"1": "SCHEDULED", "1.0": "FAILED", "1.1": "EXTERNAL", "1.2": "SUCCEEDED"}
    assert (handle.history()[1].turn is not None) is seen
    broken.clear()
    handle.retry_step("1.0")
    pump.drain()
    handle.skip("1.1", "by hand")
    pump.finish()
    assert handle.result(timeout=0) == ("A", "by hand", "C")
    assert ran == ["a", "c", "a"]


def test_what_the_body_has_seen_fail_is_not_tried_again(pump: Pump) -> None:
    def body() -> Workflow[Any]:
        try:
            yield from do("a")
        except StepFailed:
            yield from outside()

    broken.add("a")
    handle = version(body).start()
    pump.drain()
    with pytest.raises(NotRetryable, match=r"has seen it fail and gone on; fork\('1'\)"):
        handle.retry_step("1")
    with pytest.raises(NotRetryable, match="handed to the outside"):
        handle.retry_step("2")
    assert handle.status == "WAITING"


def test_a_failure_that_a_bug_did_not_take_is_tried_again(pump: Pump) -> None:
    def body() -> Workflow[Any]:
        try:
            return (yield from do("a"))
        except StepFailed as error:
            raise TypeError("a bug in the handler") from error

    broken.add("a")
    handle = version(body).start()
    pump.finish()
    assert handle.status == "BLOCKED"
    broken.clear()
    handle.retry_step("1")
    pump.finish()
    assert handle.result(timeout=0) == "A"


def test_a_running_step_is_not_tried_twice_at_once(pump: Pump) -> None:
    def body() -> Workflow[Any]:
        return (yield from do("a"))

    refused: list[str] = []

    def try_it() -> None:
        with pytest.raises(NotRetryable) as raised:
            handle.retry_step("1")
        refused.append(str(raised.value))

    handle = version(body).start()
    turns.advance(UUID(handle.id))
    with pytest.raises(NotRetryable, match="starts as soon as a worker is free"):
        handle.retry_step("1")
    meanwhile["a"] = try_it
    pump.finish()
    assert "it is RUNNING: an attempt is under way" in refused[0]
    assert ran == ["a"]


def test_what_is_no_step_is_not_tried_again(pump: Pump) -> None:
    def body() -> Workflow[Any]:
        yield from sleep(60)

    handle = version(body).start()
    pump.drain()
    with pytest.raises(NotRetryable, match="a timer is no step"):
        handle.retry_step("1")
    with pytest.raises(BadValue, match="has nothing at position '2'"):
        handle.retry_step("2")


# -- fork --------------------------------------------------------------------------------------------------------------


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
