"""Workflows that the tests of the kit run."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.db import transaction

from durable_celery import (
    Signal,
    UsageError,
    Workflow,
    set_status,
    step,
    workflow,
)
from durable_celery.testing import Harness

approved = Signal("approved", str)


class CarrierDown(Exception):
    pass


@step(name="kit.charge")
def charge(order_id: int, amount: int) -> str:
    return f"receipt {order_id}/{amount}"


@step(name="kit.refund")
def refund(receipt: str | None) -> None: ...


@step(name="kit.ship")
def ship(order_id: int) -> str:
    return f"parcel {order_id}"


@workflow(name="kit.fulfil", key=lambda order_id, by_hand=False: f"order-{order_id}")
def fulfil(order_id: int, by_hand: bool = False) -> Workflow[str]:
    yield from charge(order_id, amount=20).compensate_with(refund)
    if by_hand:
        set_status(f"approved by {(yield from approved.wait(timeout=timedelta(days=3)))}")
    return (yield from ship(order_id))


@step(name="kit.after_commit", retry=None)
def after_commit(note: str) -> list[str]:
    with transaction.atomic():
        transaction.on_commit(lambda: told.append(note))
        return list(told)


@step(name="kit.after_atomic", atomic=True)
def after_atomic(note: str) -> None:
    transaction.on_commit(lambda: told.append(note))


@step(name="kit.look")
def look() -> list[str]:
    return list(told)


told: list[str] = []


@workflow(name="kit.tell_all")
def tell() -> Workflow[list[list[str]]]:
    first = yield from after_commit("first")
    second = yield from look()
    yield from after_atomic("second")
    return [first, second, (yield from look())]


@pytest.mark.parametrize("database", ["db", "transactional_db"])
class TestTransactions:
    @pytest.fixture(autouse=True)
    def with_database(self, request: pytest.FixtureRequest, database: str) -> None:
        told.clear()
        request.getfixturevalue(database)

    def test_what_is_started_in_a_transaction_runs_after_it(self, durable: Harness) -> None:
        with transaction.atomic():
            run = durable.start(fulfil, 7)
            assert run.status == "PENDING"
            for refused in (durable.run_until_idle, lambda: durable.advance_time(1), lambda: durable.finish(run)):
                with pytest.raises(UsageError, match=r"inside atomic\(\)"):
                    refused()
            with pytest.raises(UsageError, match=r"inside atomic\(\)"):
                run.handle.result()
        assert run.status == "PENDING"
        durable.run_until_idle()
        assert run.result == "parcel 7"

    def test_what_is_rolled_back_never_runs(self, durable: Harness) -> None:
        with transaction.atomic():
            fulfil.start(7)
            transaction.set_rollback(True)
        charging = durable.mock(charge)
        durable.run_until_idle()
        durable.advance_time(days=1)
        assert not charging.called

    def test_calls_on_commit_run_when_the_code_under_test_has_committed(self, durable: Harness) -> None:
        with transaction.atomic():
            transaction.on_commit(lambda: told.append(fulfil.start(7).id))
        durable.run_until_idle()
        assert durable.run_of(told[0]).result == "parcel 7"
        told.clear()
        assert durable.run(tell).result == [[], ["first"], ["first", "second"]]
