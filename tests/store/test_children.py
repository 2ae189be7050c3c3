"""Parents and children in the tables: both or neither, each way at once, and never waiting for each other."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any
from uuid import UUID

import pytest

from django_app.models import Message, StepResult, WorkflowInstance, WorkflowKey
from django_app.store import DjangoStore, retries
from durable_celery import faults
from durable_celery.core import identity
from durable_celery.ports import Committed, NewEntry, NewInstance, NewMessage, Wake
from tests.store.making import NOW, at, at_once, committed, create, entry, instance, new_instance, turn

DECLINED = '{"type":"Declined","message":"no funds"}'
WAITING = 10.0  # seconds after which a test of threads gives up


def child_entry(position: str, **changes: Any) -> NewEntry:
    return entry(position, kind="child", name="shop.pack", state="RUNNING", attempt=1, look_at=None, **changes)


def child_of(parent_id: UUID, position: str, **changes: Any) -> NewInstance:
    return new_instance(
        id=identity.child_id(parent_id, position), name="shop.pack", parent_id=parent_id, parent_position=position,
        **changes,
    )  # fmt: skip


def with_children(store: DjangoStore, count: int = 2, *, join: str = "", **changes: Any) -> tuple[UUID, list[UUID]]:
    """A parent after its first turn, with children at 1, 2, ...; their ids."""
    parent_id = create(store).id
    positions = [str(number) for number in range(1, count + 1)]
    children = [child_of(parent_id, position, **changes) for position in positions]
    rows = [child_entry(position, join=join) for position in positions]
    assert turn(store, parent_id, *rows, children=children) is not None
    return parent_id, [child.id for child in children]


def end_child(store: DjangoStore, child_id: UUID, state: str = "COMPLETED", **changes: Any) -> Committed | None:
    row = instance(child_id)
    values: dict[str, Any] = {"result": "7"} if state == "COMPLETED" else {"failure": DECLINED}
    parent = (row.parent_id, row.parent_position)
    return turn(store, child_id, state=state, closes=True, parent=parent, **{**values, **changes})


def end_parent(store: DjangoStore, parent_id: UUID, state: str = "CANCELLED") -> Committed | None:
    rows = StepResult.objects.filter(instance_id=parent_id, state="RUNNING").values_list("id", flat=True)
    return turn(store, parent_id, state=state, closes=True, has_children=True, withdrawn=sorted(rows))


def rows_of(parent_id: UUID) -> list[tuple[str, str | None, bool]]:
    rows = StepResult.objects.filter(instance_id=parent_id).order_by("id")
    return list(rows.values_list("state", "result", "abandoned"))


@pytest.mark.django_db
def test_a_turn_inserts_its_children_and_says_whom_to_hint_at(store: DjangoStore) -> None:
    parent_id = create(store).id
    message = NewMessage(kind="signal", name="go", payload="1")
    children = [child_of(parent_id, "1", queue="vip", messages=[message]), child_of(parent_id, "2", start_at=at(60))]
    done = turn(store, parent_id, child_entry("1"), child_entry("2"), children=children)
    assert done is not None
    assert done.wakes == [
        Wake(instance_id=children[0].id, queue="vip", delay=0.0), Wake(instance_id=children[1].id, delay=60.0),
    ]  # fmt: skip
    assert done.dispatches == []
    child = instance(children[0].id)
    assert (child.parent_id, child.parent_position, child.root_id) == (parent_id, "1", parent_id)
    assert child.chain_id == child.pk
    assert Message.objects.get(chain_id=child.pk).name == "go"
    row = StepResult.objects.get(instance_id=parent_id, position="1")
    assert (row.state, row.attempt, row.look_at) == ("RUNNING", 1, None)


@pytest.mark.django_db
def test_a_turn_that_lost_leaves_no_child(store: DjangoStore) -> None:
    parent_id = create(store).id
    lost = turn(store, parent_id, child_entry("1"), children=[child_of(parent_id, "1")], revision=5)
    assert lost is None
    assert (WorkflowInstance.objects.count(), StepResult.objects.count()) == (1, 0)


@pytest.mark.django_db
@pytest.mark.parametrize("keyed", [False, True])
def test_the_statements_do_not_grow_with_the_children(store: DjangoStore, costs: Any, keyed: bool) -> None:
    figures = []
    for count in (2, 15):
        parent_id = create(store).id
        positions = [str(number) for number in range(1, count + 1)]
        keys = [f"{count}-{position}" if keyed else None for position in positions]
        children = [child_of(parent_id, position, key=key) for position, key in zip(positions, keys, strict=True)]
        with costs() as sent:
            assert turn(store, parent_id, *map(child_entry, positions), children=children) is not None
        figures.append(len(sent))
    assert figures[0] == figures[1]


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("state", "row", "result"),
    [("COMPLETED", "SUCCEEDED", "7"), ("FAILED", "FAILED", None), ("CANCELLED", "CANCELLED", None)],
)
def test_the_end_of_a_child_is_the_end_of_its_row(store: DjangoStore, state: str, row: str, result: str | None) -> None:
    parent_id, (first, _) = with_children(store)
    done = end_child(store, first, state, now=at(5))
    assert done is not None
    assert done.wakes == [Wake(instance_id=parent_id, queue="", join="")]
    ended = StepResult.objects.get(instance_id=parent_id, position="1")
    assert (ended.state, ended.result, ended.failure) == (row, result, None if result else DECLINED)
    assert (ended.finished_at, ended.look_at) == (at(5), at(7))
    assert store.has_news(parent_id)


@pytest.mark.django_db
def test_a_run_that_continues_ends_no_row(store: DjangoStore) -> None:
    parent_id, (first, _) = with_children(store)
    done = end_child(store, first, "CONTINUED")
    assert done is not None
    assert done.wakes == []
    assert rows_of(parent_id)[0] == ("RUNNING", None, False)


@pytest.mark.django_db
def test_only_the_last_of_those_awaited_together_is_news(store: DjangoStore) -> None:
    parent_id, children = with_children(store, 3, join="9")
    for child_id in children[:2]:
        done = end_child(store, child_id)
        assert done is not None
        assert done.wakes == [Wake(instance_id=parent_id, join="9")]
        assert not store.has_news(parent_id, "9")
    end_child(store, children[2])
    assert store.has_news(parent_id, "9")


@pytest.mark.django_db
def test_a_terminated_child_ends_its_row_too(store: DjangoStore) -> None:
    parent_id, (first, _) = with_children(store)
    wakes: list[Wake] = []
    assert store.end_now(first, DECLINED, NOW, wakes) == "requested"
    assert wakes == [Wake(instance_id=parent_id, join="")]
    row = StepResult.objects.get(instance_id=parent_id, position="1")
    assert (row.state, row.failure) == ("FAILED", DECLINED)


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("close", "state", "asked"),
    [("cancel", "PENDING", True), ("terminate", "TERMINATED", False), ("abandon", "PENDING", False)],
)
@pytest.mark.parametrize("end", ["FAILED", "TERMINATED"])
def test_the_end_of_a_parent_by_the_terms_of_its_children(
    store: DjangoStore, close: str, state: str, asked: bool, end: str
) -> None:
    parent_id, children = with_children(store, parent_close=close, key=None)
    wakes: list[Wake] = []
    if end == "TERMINATED":
        store.end_now(parent_id, DECLINED, NOW, wakes)
    else:
        done = end_parent(store, parent_id, "FAILED")
        assert done is not None
        wakes = list(done.wakes)
    found = [instance(child_id) for child_id in children]
    assert [child.state for child in found] == [state] * 2
    assert [child.cancel_requested_at is not None for child in found] == [asked] * 2
    if asked:
        assert {wake.instance_id for wake in wakes} == set(children)
        (payload,) = set(Message.objects.values_list("payload", flat=True))
        assert payload == f'"its parent ended {end}"'
    assert all(abandoned for _, _, abandoned in rows_of(parent_id))


@pytest.mark.django_db
def test_a_terminated_child_frees_its_key(store: DjangoStore) -> None:
    parent_id, (child,) = with_children(store, 1, parent_close="terminate", key="k")
    assert WorkflowKey.objects.get().open_id == child
    end_parent(store, parent_id)
    assert WorkflowKey.objects.get().open_id is None


@pytest.mark.django_db
def test_children_that_are_told_hear_the_reason_once(store: DjangoStore) -> None:
    parent_id, (first, second) = with_children(store)
    for _ in range(2):
        done = committed(store, parent_id, told={"1": '"why"', "7": '"nobody"'})
    assert [wake.instance_id for wake in done.wakes] == []
    (message,) = Message.objects.all()
    assert (message.chain_id, message.kind, message.payload) == (first, "cancel", '"why"')
    assert instance(second).cancel_requested_at is None


@pytest.mark.django_db
def test_a_child_that_has_ended_is_told_nothing(store: DjangoStore) -> None:
    parent_id, (first, _) = with_children(store)
    end_child(store, first)
    done = turn(store, parent_id, told={"1": '"why"'})
    assert done is not None
    assert not Message.objects.exists()


# -- at once -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def deadlocks(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Those the database met; it would end one side, which tries again, and nobody would notice."""
    met: list[str] = []
    passing = retries.passing

    def watched(error: BaseException) -> bool:
        if "deadlock" in str(error).lower() or "1213" in str(error):
            met.append(str(error))
        return passing(error)

    monkeypatch.setattr(retries, "passing", watched)
    return met


@pytest.fixture
def meet() -> Iterator[Callable[..., None]]:
    """`meet("parent", "turn.related", "child", "turn.begins")`: each thread waits at its point for the other."""

    def arrange(*places: str) -> None:
        barrier = threading.Barrier(len(places) // 2)
        at_points = set(zip(places[::2], places[1::2], strict=True))

        def reached(point: str) -> None:
            here = (threading.current_thread().name, point)
            if here in at_points:
                at_points.discard(here)
                barrier.wait(WAITING)

        faults.set_hook(reached)

    yield arrange
    faults.set_hook(None)


def named(name: str, call: Callable[[], Any]) -> Callable[[], Any]:
    def run() -> Any:
        threading.current_thread().name = name
        return call()

    return run


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("close", ["cancel", "terminate", "abandon"])
@pytest.mark.parametrize("end", ["CANCELLED", "TERMINATED"])
def test_two_children_close_while_their_parent_does(
    store: DjangoStore, deadlocks: list[str], close: str, end: str
) -> None:
    for _ in range(8):
        parent_id, children = with_children(store, parent_close=close)
        calls = [partial(end_child, store, child_id) for child_id in children]
        terminating = partial(store.end_now, parent_id, DECLINED, NOW)
        done = at_once(*calls, partial(end_parent, store, parent_id) if end == "CANCELLED" else terminating)
        assert not [each for each in done if isinstance(each, BaseException)]
        assert instance(parent_id).state == end
        for child_id, (state, _, abandoned) in zip(children, rows_of(parent_id), strict=True):
            child = instance(child_id)
            assert abandoned or child.state == "COMPLETED"
            assert state == {"COMPLETED": "SUCCEEDED", "TERMINATED": "FAILED", "PENDING": "ABANDONED"}[child.state]
            assert child.state != "PENDING" or close == "cancel"
            assert (child.state == "PENDING") == (child.cancel_requested_at is not None)
    assert deadlocks == []


@pytest.mark.server
@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("close", ["cancel", "terminate"])
def test_the_parent_waits_for_a_child_that_is_about_to_end(
    store: DjangoStore, deadlocks: list[str], meet: Callable[..., None], close: str
) -> None:
    """The child holds itself and its row of the parent, the parent holds itself: then the parent wants the child."""
    parent_id, (first, second) = with_children(store, parent_close=close)
    meet("parent", "turn.swapped", "child", "turn.in_transaction")
    done = at_once(
        named("parent", partial(end_parent, store, parent_id)), named("child", partial(end_child, store, first))
    )
    assert None not in done
    assert (instance(parent_id).state, instance(first).state) == ("CANCELLED", "COMPLETED")
    assert rows_of(parent_id)[0] == ("SUCCEEDED", "7", True)
    assert instance(second).state == {"cancel": "PENDING", "terminate": "TERMINATED"}[close]
    assert deadlocks == []


@pytest.mark.server
@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("close", ["cancel", "terminate"])
def test_a_child_waits_for_the_parent_that_ends_it(
    store: DjangoStore, deadlocks: list[str], meet: Callable[..., None], close: str
) -> None:
    """The parent holds itself and its children: the child's turn finds that it was asked to end, and looks again."""
    parent_id, (first, _) = with_children(store, parent_close=close)
    meet("parent", "turn.related", "child", "turn.begins")
    done = at_once(
        named("parent", partial(end_parent, store, parent_id)), named("child", partial(end_child, store, first))
    )
    assert done[0] is not None
    assert done[1] is None
    assert instance(first).state == {"cancel": "PENDING", "terminate": "TERMINATED"}[close]
    assert instance(first).revision == 1
    assert rows_of(parent_id)[0][0] == {"cancel": "ABANDONED", "terminate": "FAILED"}[close]
    assert deadlocks == []


@pytest.mark.server
@pytest.mark.django_db(transaction=True)
def test_a_retry_of_a_child_and_the_turn_of_its_parent_that_takes_its_failure_in(
    store: DjangoStore, deadlocks: list[str]
) -> None:
    """One of them wins: either the parent has the failure, or it waits again; never both."""
    for _ in range(8):
        parent_id, (first, _) = with_children(store)
        end_child(store, first, "FAILED")
        row_id = StepResult.objects.get(instance_id=parent_id, position="1").pk
        taking = partial(turn, store, parent_id, taken_entries={row_id: 0}, revision=instance(parent_id).revision)
        taken, retried = at_once(taking, partial(store.reopen, first, NOW))
        row = StepResult.objects.get(pk=row_id)
        if isinstance(retried, BaseException):
            assert "taken its failure in" in str(retried)
            assert taken is not None
            assert (row.state, row.taken_turn, instance(first).state) == ("FAILED", 2, "FAILED")
        else:
            assert taken is None
            assert (row.state, row.taken_turn, instance(first).state) == ("RUNNING", None, "RUNNING")
    assert deadlocks == []
