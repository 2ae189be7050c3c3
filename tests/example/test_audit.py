from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from demo.audit import Books, OrderBook, Verdict, audit
from demo.orders import CustomerPayment

SHIPPED = OrderBook(
    key="order-1",
    workflow_states=("COMPLETED",),
    state="SHIPPED",
    cancelled_because="",
    reservation="HELD",
    payments=("CAPTURED",),
    shipments=1,
    goods={"ruler": 2},
)
CANCELLED = OrderBook(
    key="order-2",
    workflow_states=("FAILED",),
    state="CANCELLED",
    cancelled_because="not paid in time",
    reservation="RELEASED",
    payments=(),
    shipments=0,
    goods={"ruler": 1},
)
PAID = CustomerPayment(event_id="evt-1", card="tok_good", after_minutes=1, deliveries=1)


def verdict(*orders: OrderBook, ruler: int, **others: Any) -> Verdict:
    return audit(Books(orders=orders, stock_before={"ruler": 10}, stock_now={"ruler": ruler}, **others))


def counts(verdict: Verdict) -> tuple[int, int, int, int, int]:
    kinds = (verdict.count("lost"), verdict.count("stuck"), verdict.count("doubled"))
    return (verdict.orders, verdict.closed, *kinds)


def test_books_that_agree_are_clean() -> None:
    found = verdict(SHIPPED, CANCELLED, replace(CANCELLED, payments=("REFUNDED",)), ruler=8)
    assert counts(found) == (3, 3, 0, 0, 0)
    assert found.clean


@pytest.mark.parametrize(
    ("order", "kind"),
    [
        (replace(SHIPPED, payments=()), "lost"),
        (replace(SHIPPED, payments=("DECLINED",)), "lost"),
        (replace(SHIPPED, payments=("CAPTURED", "CAPTURED")), "doubled"),
        (replace(SHIPPED, shipments=0), "lost"),
        (replace(SHIPPED, state="CONFIRMED"), "lost"),
        (replace(SHIPPED, workflow_states=("COMPLETED", "COMPLETED")), "doubled"),
        (replace(SHIPPED, workflow_states=()), "lost"),
        (replace(SHIPPED, workflow_states=("WAITING",)), "stuck"),
        (replace(SHIPPED, workflow_states=("BLOCKED",)), "stuck"),
    ],
)
def test_a_shipped_order_that_is_not_right_is_found(order: OrderBook, kind: str) -> None:
    found = verdict(order, ruler=8)
    assert [finding.kind for finding in found.findings] == [kind]
    assert order.key in found.findings[0].text
    assert not found.clean


@pytest.mark.parametrize(
    ("order", "kind", "ruler"),
    [
        (replace(CANCELLED, payments=("CAPTURED",)), "lost", 10),
        (replace(CANCELLED, shipments=1), "doubled", 10),
        (replace(CANCELLED, reservation="HELD"), "lost", 9),
        (replace(CANCELLED, state="PLACED"), "lost", 10),
        (replace(CANCELLED, accepted_payment=PAID), "lost", 10),
    ],
)
def test_a_cancelled_order_that_is_not_right_is_found(order: OrderBook, kind: str, ruler: int) -> None:
    found = verdict(order, ruler=ruler)
    assert [finding.kind for finding in found.findings] == [kind]


def test_a_paid_order_may_be_cancelled_for_a_reason_of_its_own() -> None:
    for reason in ("sold out", "no longer for sale", "address not served"):
        assert verdict(replace(CANCELLED, cancelled_because=reason, accepted_payment=PAID), ruler=10).clean


def test_a_declined_card_may_be_cancelled() -> None:
    declined = replace(PAID, card="tok_declined")
    order = replace(CANCELLED, cancelled_because="card declined", accepted_payment=declined, payments=("DECLINED",))
    assert verdict(order, ruler=10).clean


@pytest.mark.parametrize("ruler", [6, 7, 9, 10])
def test_stock_that_went_down_more_or_less_than_once_per_order_is_found(ruler: int) -> None:
    found = verdict(SHIPPED, ruler=ruler)
    assert counts(found) == (1, 1, 0, 0, 1)


def test_an_order_that_was_never_placed_is_lost_and_not_closed() -> None:
    found = verdict(SHIPPED, ruler=8, never_placed=1)
    assert counts(found) == (2, 1, 1, 0, 0)
    assert not found.clean


def test_an_order_counts_once_in_a_figure_however_many_books_disagree() -> None:
    assert counts(verdict(replace(SHIPPED, payments=(), shipments=0), ruler=8)) == (1, 1, 1, 0, 0)
