"""map_step: errors at the call, querysets, and what people see."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.db import connections

from django_app.models import StepResult
from django_app.store import keysets
from durable_celery import (
    NotInWorkflow,
    StepClosed,
    Workflow,
    map_step,
    step,
)
from durable_celery.core import transitions as t
from tests.engine.map_steps import (
    RAN,
    _nothing_ran,  # noqa: F401
    double,
    doubling,
)
from tests.project.testapp.models import Effect
from tests.pump import Pump, release

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
