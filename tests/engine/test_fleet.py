"""Old and new code side by side: what one worker cannot go on with is left to the other, and blocked if there is none.

Both fleets live in this process: a body is registered for the old code and one for the new, and each message goes to a
worker of the one or the other."""

from __future__ import annotations

import random
from datetime import timedelta
from typing import Any

import pytest

from django_app.models import StepResult, WorkerLease
from durable_celery import Workflow, get_version, runtime
from durable_celery.engine import fleet
from tests.bad_input.test_unknown_names import without
from tests.engine.fleets import NAME, Fleet, after_the_check, check, go, loan, new_code, old_code, pay, row_of
from tests.pump import Pump

pytestmark = pytest.mark.django_db(transaction=True)


def test_an_old_worker_leaves_a_run_of_the_new_way_to_a_new_one(pump: Pump, fleets: Fleet, blocks: list[str]) -> None:
    fleets.worker("old", old_code)
    fleets.worker("new", new_code)
    handle = after_the_check(pump, fleets)
    before = row_of(handle)

    with fleets.take(old_code) as old:
        pump.deliver(pump.ready()[0])  # runs the check, and takes the turn
        row = row_of(handle)
        assert (row.state, row.revision, row.turn) == (before.state, before.revision, before.turn)
        assert row.blocked_by.split() == [old.fingerprint]
        assert row.look_at == pump.now + timedelta(seconds=2)
        assert row.left_at == pump.now
        assert StepResult.objects.filter(instance_id=handle.id).count() == 2
        said = handle.waiting_for
        assert said.startswith(f"a worker that knows the code of this run of workflow '{NAME}' version 1; new@host may")
        assert "recorded is step fleet.check, the body now asks for step fleet.pay" in said
    with fleets.take(new_code):
        pump.advance_time(1)  # it was sent on: no tick is needed

    assert handle.result(timeout=0) == ["checked ann", "paid ann"]
    assert row_of(handle).left_at is None
    assert blocks == []


def test_a_new_worker_leaves_a_run_of_the_old_way_to_an_old_one(pump: Pump, fleets: Fleet, blocks: list[str]) -> None:
    def unguarded(who: str) -> Workflow[list[str]]:
        yield from go.wait()  # durable: ok
        first = yield from check(who)
        return [first, (yield from pay(who))]

    unguarded.__qualname__ = unguarded.__name__ = "loan"
    fleets.worker("old", old_code)
    fleets.worker("new", unguarded)
    handle = loan.start("ann")
    with fleets.take(old_code):
        pump.drain()
        go.send(handle)
        pump.deliver(pump.ready()[0])
    with fleets.take(unguarded):
        pump.deliver(pump.ready()[0])
        assert handle.status != "BLOCKED"
        assert "old@host may" in handle.waiting_for
    with fleets.take(old_code):
        pump.advance_time(1)
    assert handle.result(timeout=0) == ["paid ann"]
    assert blocks == []


def test_the_tick_sends_it_on_where_that_message_is_lost(pump: Pump, fleets: Fleet) -> None:
    fleets.worker("new", new_code)
    handle = after_the_check(pump, fleets)
    with fleets.take(old_code):
        pump.fate = lambda hint: ()
        pump.deliver(pump.ready()[0])
        pump.fate = lambda hint: (0.0,)
        assert pump.queue == []
    with fleets.take(new_code):
        pump.advance_time(3)
    assert handle.result(timeout=0) == ["checked ann", "paid ann"]


def test_what_did_not_fit_once_is_not_replayed_again(pump: Pump, fleets: Fleet) -> None:
    runs: list[str] = []

    def noting(who: str) -> Workflow[list[str]]:
        runs.append(who)
        yield from go.wait()  # durable: ok
        return [(yield from pay(who))]

    noting.__qualname__ = noting.__name__ = "loan"
    fleets.worker("new", new_code)
    handle = after_the_check(pump, fleets)
    with fleets.take(noting):
        pump.deliver(pump.ready()[0])
        assert runs == ["ann"]
        pump.advance_time(8)
        assert runs == ["ann"]
        with fleets.take(new_code):
            pump.deliver(next(hint for hint in pump.queue if hint.instance is not None))
        (payment,) = [hint for hint in pump.queue if hint.name == "fleet.pay"]
        pump.deliver(payment)  # the next turn is another one; it is known all the same
        assert runs == ["ann"]
        assert handle.status != "BLOCKED"
    with fleets.take(new_code):
        pump.advance_time(1)
    assert handle.result(timeout=0) == ["checked ann", "paid ann"]


def test_a_version_this_code_has_no_more_is_left_to_code_that_has_it(
    pump: Pump, fleets: Fleet, blocks: list[str]
) -> None:
    def first(who: str) -> Workflow[Any]:
        version = get_version("tax", 1, 1)
        yield from pay(who)
        return version

    def third(who: str) -> Workflow[Any]:
        version = get_version("tax", 2, 3)
        yield from pay(who)
        return version

    for body in (first, third):
        body.__qualname__ = body.__name__ = "loan"
    fleets.worker("first", first)
    with fleets.take(first) as definition:
        handle = definition.start("ann")
        pump.deliver(pump.ready()[0])
    with fleets.take(third):
        pump.drain()
        assert "follows version 1 of the change 'tax', and this code has the versions 2 to 3" in handle.waiting_for
        assert handle.status != "BLOCKED"
        fleets.gone("first")
        pump.advance_time(6)
        assert handle.status == "BLOCKED"
        assert "Deploy code that has version 1 (older than this one)" in handle.waiting_for
    with fleets.take(first):
        pump.advance_time(3)
        assert handle.result(timeout=0) == 1
    assert blocks == [handle.id]


def test_a_version_one_worker_lacks_is_sent_on_to_one_that_has_it(pump: Pump, fleets: Fleet, blocks: list[str]) -> None:
    def second(who: str) -> Workflow[list[str]]:
        return ["second", (yield from pay(who))]

    fleets.worker("new", second, version=2)
    with fleets.take(second, version=2) as definition:
        handle = definition.start("ann")
    pump.deliver(pump.ready()[0])
    row = row_of(handle)
    assert (row.state, row.turn, row.revision, row.blocked_by) == ("PENDING", 0, 0, "")
    assert f"a worker that knows workflow '{NAME}' version 2" in handle.waiting_for
    assert "it knows versions [1]" in handle.waiting_for
    with fleets.take(second, version=2):
        pump.advance_time(1)
        assert handle.result(timeout=0) == ["second", "paid ann"]
    assert blocks == []


def test_open_instances_keep_their_version_and_new_ones_take_the_highest(pump: Pump, fleets: Fleet) -> None:
    def second(who: str) -> Workflow[list[str]]:
        yield from go.wait()  # durable: ok
        return ["second", (yield from check(who))]

    first = loan.start("ann")
    pump.drain()
    with fleets.take(second, version=2):
        newer = loan.start("bea")
        for handle in (first, newer):
            go.send(handle)
        pump.finish()
        assert (row_of(first).version, row_of(newer).version) == (1, 2)
        assert first.result(timeout=0) == ["paid ann"]
        assert newer.result(timeout=0) == ["second", "checked bea"]


def test_a_step_only_a_live_worker_beside_knows_is_sent_again_soon(pump: Pump, fleets: Fleet) -> None:
    handle = loan.start("ann")
    pump.drain()
    go.send(handle)
    (hint,) = pump.ready()
    pump.deliver(hint)
    with without(steps=("fleet.pay",)):
        pump.drain()
        alone = StepResult.objects.get(instance_id=handle.id, kind="step").look_at
        assert alone == pump.now + timedelta(seconds=30)
    fleets.worker("new", new_code)
    with without(steps=("fleet.pay",)):
        pump.advance_time(31)
        beside = StepResult.objects.get(instance_id=handle.id, kind="step").look_at
        assert beside is not None
        assert beside <= pump.now + timedelta(seconds=2)
    pump.advance_time(3)
    assert handle.result(timeout=0) == ["paid ann"]


def test_any_mixture_ends_every_run_by_rule(pump: Pump, fleets: Fleet, blocks: list[str]) -> None:
    fleets.worker("old", old_code)
    fleets.worker("new", new_code)
    dice = random.Random(7)
    handles = [loan.start(f"p{number}") for number in range(30)]
    for handle in handles:
        go.send(handle)
    plain = pump.deliver

    def deliver(hint: Any) -> Any:
        with fleets.take(dice.choice((old_code, new_code))):
            return plain(hint)

    pump.deliver = deliver  # type: ignore[method-assign]
    pump.advance_time(minutes=3)
    ends = [handle.result(timeout=0) for handle in handles]
    assert all(end in ([f"paid p{n}"], [f"checked p{n}", f"paid p{n}"]) for n, end in enumerate(ends))
    assert 0 < sum(len(end) == 2 for end in ends) < 30
    assert blocks == []


def test_an_announcement_names_steps_and_bodies_and_is_read_back() -> None:
    code = fleet.code_of(fleet.announcement())
    assert code.bodies[(NAME, 1)] == loan.fingerprint
    assert "fleet.pay" in code.steps
    assert fleet.code_of("not json") == fleet.Code()
    assert fleet.code_of('{"bodies": 7}') == fleet.Code()


def test_leases_are_read_without_what_they_announce(pump: Pump, fleets: Fleet) -> None:
    fleets.worker("new", new_code)
    assert {lease.code for lease in runtime.current().store.leases()} == {""}
    assert WorkerLease.objects.exclude(code="").count() == 1
