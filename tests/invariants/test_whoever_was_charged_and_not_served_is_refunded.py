"""Whoever was charged and not served is refunded: a claimed step with a compensation is never forgotten."""

from __future__ import annotations

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from django_app.models import StepResult
from durable_celery import RetryPolicy, StepFailed, Workflow, current_step, gather, sleep, step, workflow
from tests.invariants.examples import few
from tests.pump import Pump, clear_tables

pytestmark = pytest.mark.django_db(transaction=True)

quick = RetryPolicy(initial_interval=1, maximum_attempts=2, jitter=False)
POINTS = ("claim.before", "claim.after_commit", "body.before", "charged", "body.after", "record.before",
          "step.in_transaction", "record.after", "turn.before_body", "turn.before_commit", "turn.in_transaction",
          "turn.after_commit", "publish.before", "publish.after", "tick.before_act")  # fmt: skip


class Gateway:
    """The outside: it keeps what it did whatever becomes of the caller, and does nothing twice for one key."""

    def __init__(self) -> None:
        self.charged: dict[str, str] = {}
        self.refunded: set[str] = set()
        self.served: set[str] = set()
        self.trouble: dict[str, list[str]] = {}

    def next_trouble(self, where: str) -> str:
        left = self.trouble.get(where, [])
        return left.pop(0) if left else ""


gateway = Gateway()


@step(retry=quick, start_to_close_timeout=30)
def charge(order: str) -> str:
    trouble = gateway.next_trouble("charge")
    if trouble == "refused":
        raise ValueError("no money")
    gateway.charged[current_step().idempotency_key] = order
    from durable_celery import faults

    faults.reach("charged")
    if trouble == "slow":
        world[0].advance_time(seconds=60)  # beyond its limit: the row is fenced, the late result dropped
    return f"receipt of {order}"


@step(retry=RetryPolicy(initial_interval=1, maximum_attempts=0, jitter=False))
def refund(order: str) -> None:
    if gateway.next_trouble("refund"):
        raise RuntimeError("the gateway is away")
    gateway.refunded.add(order)


@step(retry=quick)
def serve(order: str) -> None:
    if gateway.next_trouble("serve"):
        raise RuntimeError("no parcel")
    gateway.served.add(order)


@step
def write_invoice(order: str) -> None:
    if gateway.next_trouble("invoice"):
        raise ValueError("no paper")


@workflow
def fulfilling(order: str) -> Workflow[str]:
    yield from gather(charge(order).compensate_with(refund(order)), write_invoice(order))
    yield from sleep(5)
    yield from serve(order)
    return order


@workflow
def giving_up(order: str) -> Workflow[str]:
    """A failed charge is caught, and something else fails afterwards."""
    try:
        yield from charge(order).compensate_with(refund(order))
    except StepFailed:
        yield from write_invoice(order)
    yield from serve(order)
    return order


world: list[Pump] = []


@few
@given(
    kills=st.lists(st.tuples(st.sampled_from(POINTS), st.integers(1, 3), st.booleans()), max_size=4),
    charges=st.lists(st.sampled_from(["", "refused", "slow"]), max_size=3),
    serves=st.lists(st.booleans(), max_size=2),
    invoices=st.lists(st.booleans(), max_size=5),
    refunds=st.lists(st.booleans(), max_size=3),
    fates=st.lists(st.sampled_from([(0.0,), (), (0.0, 2.0)]), max_size=12),
    caught=st.booleans(),
)
def test_whoever_was_charged_and_not_served_is_refunded(
    kills: list[tuple[str, int, bool]],
    charges: list[str],
    serves: list[bool],
    invoices: list[bool],
    refunds: list[bool],
    fates: list[tuple[float, ...]],
    caught: bool,
) -> None:
    clear_tables()
    gateway.__init__()  # type: ignore[misc]
    gateway.trouble = {
        "charge": list(charges),
        "serve": ["x" if each else "" for each in serves],
        "invoice": ["x" if each else "" for each in invoices],
        "refund": ["x" if each else "" for each in refunds],
    }
    with Pump() as pump:
        world[:] = [pump]
        left = iter(fates)
        pump.fate = lambda hint: next(left, (0.0,))
        for point, nth, proven in kills:
            pump.kill_at(point, nth, proven=proven)
        handle = (giving_up if caught else fulfilling).start("order")
        pump.finish()

        assert handle.status in ("COMPLETED", "FAILED"), handle.waiting_for
        charged = "order" in gateway.charged.values()
        event(f"{handle.status}, charged: {charged}, refunded: {bool(gateway.refunded)}")
        if handle.status == "COMPLETED":
            assert "order" in gateway.served
            assert not gateway.refunded
        elif charged:
            assert gateway.refunded == {"order"}
        assert len(gateway.charged) <= 1
        unended = StepResult.objects.filter(instance_id=handle.id, state__in=("SCHEDULED", "RUNNING", "RETRYING"))
        assert not unended.exists()


@pytest.mark.parametrize("proven", [True, False])
def test_a_charge_that_took_three_processes_with_it_is_refunded(pump: Pump, proven: bool) -> None:
    gateway.__init__()  # type: ignore[misc]
    world[:] = [pump]
    for _ in range(12):
        pump.kill_at("charged", proven=proven)
    handle = fulfilling.start("order")
    pump.finish()
    assert handle.status == "FAILED"
    assert list(gateway.charged.values()) == ["order"]
    assert gateway.refunded == {"order"}
    assert gateway.served == set()
