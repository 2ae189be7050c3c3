"""``map_step`` over the real database: as gather, at flat memory, found again whatever is lost."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.db import connections

from django_app.models import StepResult, WorkflowInstance
from django_app.store import keysets
from durable_celery import (
    NotInWorkflow,
    Signal,
    StepClosed,
    StepFailed,
    Workflow,
    gather,
    map_step,
    race,
    sleep,
    spawn,
    step,
    workflow,
)
from durable_celery.core import transitions as t
from tests.project.testapp.models import Effect
from tests.pump import Pump, counted, release

RAN: list[Any] = []


@step(name="maps.double", retry=1)
def double(number: int) -> int:
    RAN.append(number)
    if number < 0:
        raise ValueError(f"no luck with {number}")
    return 2 * number


@workflow(name="maps.doubling")
def doubling(numbers: list[int], limit: int | None = None, tolerate: int = 0) -> Workflow[Any]:
    return (yield from map_step(double, numbers, limit=limit, tolerate=tolerate))


@pytest.fixture(autouse=True)
def _nothing_ran():
    RAN.clear()


def test_results_come_in_order_as_a_tuple(pump: Pump):
    handle = doubling.start([3, 1, 2])
    pump.choose = lambda ready: len(ready) - 1
    pump.drain()
    assert handle.result(timeout=1) == (6, 2, 4)
    assert RAN == [2, 1, 3]


def test_nothing_to_do_is_done_at_once(pump: Pump):
    handle = doubling.start([])
    pump.drain()
    assert handle.result(timeout=1) == ()
    (entry,) = handle.history()
    assert (entry.kind, entry.state, entry.result) == ("map", t.SUCCEEDED, ())


def test_waits_for_all_then_raises_the_error_of_the_lowest_failed_position(pump: Pump):
    caught: list[StepFailed] = []

    def body(numbers: list[int]) -> Workflow[str]:
        try:
            yield from map_step(double, numbers)
        except StepFailed as error:
            caught.append(error)
        yield from double(50)
        return "went on"

    handle = release("maps.catching", body).start([1, -2, 3, -4])
    pump.choose = lambda ready: len(ready) - 1
    pump.drain()
    assert handle.result(timeout=1) == "went on"
    assert sorted(RAN) == [-4, -2, 1, 3, 50]
    assert len(caught) == 2  # live, and on replay
    for error in caught:
        assert error.position == "1.1"
        assert error.message == "no luck with -2"
        assert error.results == [2, None, 6, None]
        assert [e and e.message for e in error.errors] == [None, "no luck with -2", None, "no luck with -4"]
    assert str(caught[0]) == str(caught[1])
    assert caught[0].traceback == caught[1].traceback != ""


def test_tolerated_failures_stand_as_exceptions(pump: Pump):
    seen: list[Any] = []

    def body() -> Workflow[int]:
        values = yield from map_step(double, [1, -2, 3], tolerate=1)
        seen.append(values)
        return (yield from double(5))

    handle = release("maps.tolerant", body).start()
    pump.drain()
    assert handle.result(timeout=1) == 10
    for values in seen:
        assert (values[0], values[2]) == (2, 6)
        assert isinstance(values[1], StepFailed)
        assert values[1].matches(ValueError)


def test_under_a_limit_so_many_run_at_once_and_none_starts_after_a_failure(pump: Pump):
    handle = doubling.start([1, -2, 3, 4, 5], limit=2)
    pump.deliver(pump.ready()[0])
    assert sorted(states(handle).values()) == [t.HELD] * 3 + [t.SCHEDULED] * 2
    pump.choose = lambda ready: len(ready) - 1
    pump.drain()
    assert handle.status == t.FAILED
    assert RAN == [-2, 1]
    assert list(states(handle).values()) == [t.SUCCEEDED, t.FAILED, t.CANCELLED, t.CANCELLED, t.CANCELLED]


def test_under_a_limit_failures_within_the_tolerance_stop_nothing(pump: Pump):
    handle = doubling.start([1, -2, 3, -4, 5], limit=1, tolerate=1)
    pump.drain()
    assert RAN == [1, -2, 3, -4]
    assert handle.status == t.FAILED


def states(handle: Any) -> dict[str, str]:
    return {entry.position: entry.state for entry in handle.history(of="1")}


# -- giving up ---------------------------------------------------------------------------------------------------------


def test_a_cancel_stops_at_once_what_no_worker_has_and_waits_for_the_rest(pump: Pump):
    told: list[str] = []

    def slow(number: int) -> int:
        if number == 1:
            told.append(handle.cancel("enough"))
            pump.drain()
            told.append(handle.status)
            told.append(str(sorted(states(handle).values())))
        return number

    with swapped(double, slow):
        handle = doubling.start([1, 2, 3, 4], limit=2)
        pump.drain()
    assert told == ["requested", t.WAITING, str([t.CANCELLED] * 3 + [t.RUNNING])]
    assert handle.status == t.CANCELLED
    assert states(handle) == {"1.0": t.SUCCEEDED, "1.1": t.CANCELLED, "1.2": t.CANCELLED, "1.3": t.CANCELLED}
    assert handle.history()[0].state == t.CANCELLED


def test_a_cancel_of_what_nobody_has_claimed_ends_at_once_by_one_update(pump: Pump):
    handle = doubling.start(list(range(50)))
    pump.deliver(pump.ready()[0])
    handle.cancel()
    with counted() as sent:
        pump.deliver(next(hint for hint in pump.ready() if hint.step is None))
    assert handle.status == t.CANCELLED
    assert set(states(handle).values()) == {t.CANCELLED}
    assert not [sql for sql in sent if sql.startswith("INSERT") and "stepresult" in sql]
    updates = [sql for sql in sent if sql.startswith("UPDATE") and "durable_celery_stepresult" in sql]
    assert len(updates) <= 4, updates
    pump.drain()
    assert RAN == []


def test_a_map_whose_members_are_all_claimed_gives_its_value_before_the_cancel(pump: Pump):
    got: list[Any] = []

    def body() -> Workflow[None]:
        got.append((yield from map_step(double, [1])))
        yield from double(99)

    def cancelling(number: int) -> int:
        RAN.append(number)
        handle.cancel()
        pump.drain()
        return number

    with swapped(double, cancelling):
        handle = release("maps.cancelled_late", body).start()
        pump.drain()
    assert handle.status == t.CANCELLED
    assert got[-1] == (1,)
    assert RAN == [1]


def test_a_terminated_run_gives_up_its_members(pump: Pump):
    handle = doubling.start([1, 2, 3], limit=1)
    pump.deliver(pump.ready()[0])
    handle.terminate()
    pump.finish()
    assert set(states(handle).values()) == {t.CANCELLED}
    assert RAN == []


def test_a_body_that_ends_gives_up_its_spawned_map(pump: Pump):
    def body() -> Workflow[str]:
        yield from spawn(map_step(double, [1, 2]))
        return "done"

    handle = release("maps.spawning", body).start()
    pump.drain()
    assert handle.result(timeout=1) == "done"
    assert RAN == []


# -- nesting -----------------------------------------------------------------------------------------------------------


def test_maps_in_gathers_and_gathers_wake_the_body_once(pump: Pump):
    def body() -> Workflow[Any]:
        return (yield from gather(a=map_step(double, [1, 2]), b=double(3), c=gather(map_step(double, [], limit=1))))

    handle = release("maps.gathered", body).start()
    pump.drain()
    assert handle.result(timeout=1) == {"a": (2, 4), "b": 6, "c": ((),)}
    assert WorkflowInstance.objects.get(pk=handle.id).turn == 2


def test_a_map_wins_a_race_and_another_loses_one(pump: Pump):
    never = Signal("never", int)

    def body() -> Workflow[Any]:
        won = yield from race(map_step(double, [1, 2]), never.wait(warn_after=60))
        lost = yield from race(all=map_step(double, [3, 4], limit=1), first=sleep(0))
        return won, lost.name

    handle = release("maps.racing", body).start()
    for _ in range(3):
        pump.deliver(pump.ready()[0])
    pump.queue.clear()
    pump.advance_time(1)
    won, lost = handle.result(timeout=1)
    assert (won.name, won.value) == (0, (2, 4))
    assert lost == "first"
    assert {entry.state for entry in handle.history(of="2.0")} <= {t.CANCELLED, t.SUCCEEDED}


def test_a_spawned_map_is_joined(pump: Pump):
    def body() -> Workflow[Any]:
        handle = yield from spawn(map_step(double, [1, 2]))
        one = yield from double(5)
        many = yield from handle
        return one, many

    handle = release("maps.joined", body).start()
    pump.drain()
    assert handle.result(timeout=1) == (10, (2, 4))


# -- retry() -----------------------------------------------------------------------------------------------------------


def positive(number: int) -> int:
    RAN.append(number)
    return abs(number)


@pytest.mark.parametrize("limit", [None, 1, 2])
def test_retry_takes_back_what_failed_or_never_started_and_nothing_else(pump: Pump, limit: int | None):
    handle = doubling.start([1, -2, 3, -4, 5], limit=limit)
    pump.drain()
    assert handle.status == t.FAILED
    begun = sorted(RAN)
    with swapped(double, positive):
        handle.retry()
        pump.finish()
    assert handle.result(timeout=1)[1] == 2
    assert [entry.state for entry in handle.history(of="1")] == [t.SUCCEEDED] * 5
    good = [number for number in begun if number > 0]
    assert all(RAN.count(number) == 1 for number in good)
    assert sorted(RAN) == sorted(begun + [n for n in (1, -2, 3, -4, 5) if n < 0 or n not in begun])


# -- what is lost is found ---------------------------------------------------------------------------------------------


def test_members_whose_messages_are_lost_are_sent_again(pump: Pump):
    pump.fate = lambda hint: () if hint.number % 2 else (0.0,)
    handle = doubling.start(list(range(20)), limit=5)
    pump.finish()
    assert handle.result(timeout=1) == tuple(2 * n for n in range(20))


@pytest.mark.parametrize("point", ["record.after", "record.before", "claim.after_commit", "turn.after_commit"])
@pytest.mark.parametrize("nth", [1, 3])
def test_a_process_that_dies_anywhere_leaves_nothing_behind(pump: Pump, point: str, nth: int):
    handle = doubling.start([1, 2, 3])
    pump.kill_at(point, nth)
    pump.finish()
    assert handle.result(timeout=1) == (2, 4, 6)


def test_the_end_of_the_last_member_is_found_if_nobody_told(pump: Pump):
    handle = doubling.start([1, 2])
    pump.deliver(pump.ready()[0])
    pump.kill_at("record.after", 2)
    pump.drain()
    assert set(states(handle).values()) == {t.SUCCEEDED}
    assert handle.status == t.WAITING
    pump.finish()
    assert handle.result(timeout=1) == (2, 4)


def test_the_tick_looks_at_ended_members_of_an_open_map_once_and_together(pump: Pump):
    pump.tick()
    statements = [statements_of_a_tick_after(pump, members) for members in (5, 100)]
    assert statements[0] == statements[1]


def statements_of_a_tick_after(pump: Pump, members: int) -> int:
    handle = doubling.start(list(range(members + 1)))
    pump.deliver(pump.ready()[0])
    for hint in pump.ready()[:members]:
        pump.deliver(hint)
    pump.queue.clear()
    StepResult.objects.filter(state=t.SCHEDULED, mapped=True).update(look_at=None)
    pump.now += timedelta(seconds=10)
    with counted() as sent:
        assert pump.tick().advanced == 0
    assert not StepResult.objects.filter(mapped=True, look_at__isnull=False).exists()
    assert handle.status == t.WAITING
    return len(sent)


# -- errors at the call ------------------------------------------------------------------------------------------------


@step(name="maps.pair")
def pair(a: int, b: int) -> int:
    return a + b


mistaken: Any = map_step


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: mistaken(len, [1]), "map_step takes a step, got builtin_function_or_method"),
        (lambda: mistaken(doubling, [1]), "map_step takes a step, got WorkflowDefinition"),
        (lambda: mistaken(pair, [1]), "with one item: missing a required argument: 'b'"),
        (lambda: mistaken(double, 5), "map_step takes an iterable or a queryset, got int 5"),
        (lambda: mistaken(double, "abc"), "to go through its characters pass list(...)"),
        (lambda: mistaken(double, {1, 2}), "its order differs between processes: pass sorted(...)"),
        (lambda: mistaken(double, [1, object()]), "item [1] of map_step(maps.double)"),
        (lambda: mistaken(double, [1], limit=0), "limit=0 is not allowed"),
        (lambda: mistaken(double, [1], tolerate=-1), "tolerate=-1 is not allowed"),
        (lambda: mistaken(double, [1]).compensate_with(double), "cannot be compensated as one"),
    ],
)
def test_wrong_calls_are_errors_that_say_what_to_do(pump: Pump, call: Any, says: str):
    def body() -> Workflow[None]:
        yield from call()

    handle = release("maps.wrong", body).start()
    pump.drain()
    assert handle.status == t.BLOCKED
    assert says in handle.waiting_for


def test_outside_a_workflow_it_says_so():
    with pytest.raises(NotInWorkflow, match="map_step works only inside a running workflow"):
        mistaken(double, [1])


def test_another_number_of_items_on_replay_does_not_fit_the_journal(pump: Pump):
    items = [1, 2]

    def body() -> Workflow[Any]:
        first = yield from map_step(double, items)
        yield from double(7)
        return first

    handle = release("maps.changing", body).start()
    pump.deliver(pump.ready()[0])
    items.append(3)
    pump.drain()
    assert handle.status == t.BLOCKED
    assert "map of maps.double over 2 items" in handle.waiting_for


# -- querysets ---------------------------------------------------------------------------------------------------------


@step(name="maps.key", retry=1)
def key(pk: Any) -> Any:
    RAN.append(pk)
    return pk


def test_of_a_queryset_the_step_gets_primary_keys_in_their_order(pump: Pump, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(keysets, "PAGE", 3)
    made = Effect.objects.bulk_create([Effect(key=f"k{n % 4}") for n in range(11)])
    keys = sorted(Effect.objects.exclude(key="k1").values_list("pk", flat=True))

    def body() -> Workflow[Any]:
        found = yield from map_step(key, Effect.objects.exclude(key="k1"), limit=2)
        again = yield from map_step(key, Effect.objects.filter(key="none"))
        return found, again, (yield from map_step(key, Effect.objects.values_list("pk", flat=True).order_by("pk")))

    handle = release("maps.rows", body).start()
    pump.drain()
    found, again, everything = handle.result(timeout=1)
    assert list(found) == keys
    assert again == ()
    assert len(everything) == len(made)
    assert [entry.state for entry in handle.history()] == [t.SUCCEEDED] * 3
    assert [row.members for row in StepResult.objects.filter(kind="map").order_by("id")] == [len(keys), 0, len(made)]


@pytest.fixture
def elsewhere(tmp_path: Path, transactional_db: None) -> Iterator[str]:
    """Another database, with the same table."""
    connections.databases["elsewhere"] = {
        **connections.databases["default"], "ENGINE": "django.db.backends.sqlite3", "NAME": str(tmp_path / "elsewhere"),
        "OPTIONS": {},
    }  # fmt: skip
    connections["elsewhere"].connect()  # what is open is no concern of the test framework's
    with connections["elsewhere"].schema_editor() as editor:
        editor.create_model(Effect)
    yield "elsewhere"
    connections["elsewhere"].close()
    del connections["elsewhere"], connections.databases["elsewhere"]


def test_a_queryset_may_be_on_another_database(pump: Pump, elsewhere: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(keysets, "PAGE", 2)
    Effect.objects.create(key="not this one")
    rows = [Effect.objects.using(elsewhere).create(key=f"k{n}", id=100 + n) for n in range(5)]

    def body() -> Workflow[Any]:
        return (yield from map_step(key, Effect.objects.using(elsewhere).all()))

    handle = release("maps.elsewhere", body).start()
    pump.drain()
    assert handle.result(timeout=1) == tuple(row.pk for row in rows)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: Effect.objects.all()[:5], "it is sliced"),
        (lambda: Effect.objects.order_by("-key"), "it has an order of its own"),
        (lambda: Effect.objects.order_by("-pk"), "it has an order of its own"),
        (lambda: Effect.objects.all().union(Effect.objects.all()), "it is a union"),
        (lambda: Effect.objects.values("key"), "it gives values()"),
        (lambda: Effect.objects, "got Manager"),
        (lambda: Effect.objects.iterator(), "a database query in a workflow body is refused"),
    ],
)
def test_querysets_that_cannot_be_read_in_pages_are_refused(pump: Pump, make: Any, says: str):
    def body() -> Workflow[None]:
        yield from map_step(key, make())

    handle = release("maps.refused", body).start()
    pump.drain()
    assert handle.status == t.BLOCKED
    assert says in handle.waiting_for


# -- what people see ---------------------------------------------------------------------------------------------------


def test_it_says_how_far_it_is(pump: Pump):
    handle = doubling.start(list(range(-1, 4)), tolerate=1)
    pump.deliver(pump.ready()[0])
    assert handle.waiting_for.startswith("map at 1, 0 of 5 ended, since")
    for hint in pump.ready()[:3]:
        pump.deliver(hint)
    assert handle.waiting_for.startswith("map at 1, 3 of 5 ended (1 failed), since")
    (entry,) = handle.history()
    assert (entry.kind, entry.name, entry.result) == ("map", "maps.double", None)
    assert [e.position for e in handle.history(of="1", start=1, limit=2)] == ["1.1", "1.2"]
    assert [e.args for e in handle.history(of="1", start=1, limit=2)] == [((0,), {}), ((1,), {})]
    with pytest.raises(StepClosed):
        handle.complete_step("1.0")
    handle.complete_step("1.4", 77)
    pump.drain()
    assert handle.result(timeout=1)[4] == 77
    assert handle.history()[0].result[4] == 77


@contextmanager
def swapped(of: Any, body: Any) -> Iterator[None]:
    """Another body for a step, for a while."""
    before, of.body = of.body, body
    try:
        yield
    finally:
        of.body = before
