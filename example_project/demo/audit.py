"""Compares four books that are kept apart: the workflows, the shop's stock and shipments, the provider's payments, and
what customers were told. ``read_books`` reads them, ``audit`` judges them.

lost      an order without a workflow, or something owed that did not happen: a paid order without a parcel, money or
          goods that did not come back, an accepted payment that was ignored
stuck     a workflow that is still open
doubled   something that happened more often than once, or to an order that should not have had it
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from .orders import GOOD_CARD, CustomerPayment

FINAL = frozenset({"COMPLETED", "FAILED", "CANCELLED", "TERMINATED"})
CUSTOMERS_OWN_FAULT = frozenset({"sold out", "no longer for sale", "address not served"})


@dataclass(frozen=True)
class OrderBook:
    """One order as each book shows it."""

    key: str
    workflow_states: tuple[str, ...]
    state: str
    cancelled_because: str
    reservation: str
    payments: tuple[str, ...]
    shipments: int
    goods: Mapping[str, int]
    accepted_payment: CustomerPayment | None = None

    @property
    def closed(self) -> bool:
        return bool(self.workflow_states) and FINAL.issuperset(self.workflow_states)

    @property
    def completed(self) -> bool:
        return "COMPLETED" in self.workflow_states


@dataclass(frozen=True)
class Books:
    """``stock_before`` and ``stock_now`` by product; ``never_placed`` counts orders the shop does not know."""

    orders: tuple[OrderBook, ...]
    stock_before: Mapping[str, int]
    stock_now: Mapping[str, int]
    never_placed: int = 0


@dataclass(frozen=True)
class Finding:
    kind: str
    text: str


@dataclass(frozen=True)
class Verdict:
    """``findings`` are in words, the counts in orders (and, for stock, in products)."""

    orders: int
    closed: int
    findings: tuple[Finding, ...] = field(default=())

    def count(self, kind: str) -> int:
        return sum(finding.kind == kind for finding in self.findings)

    @property
    def clean(self) -> bool:
        return self.closed == self.orders and not self.findings


def audit(books: Books) -> Verdict:
    findings = [Finding("lost", "an order was never placed")] * books.never_placed
    for order in books.orders:
        # An order counts once in a figure, however many of the books disagree about it.
        by_kind = {finding.kind: finding for finding in reversed(list(_judge(order)))}
        findings += by_kind.values()
    findings += _judge_stock(books)
    return Verdict(
        orders=len(books.orders) + books.never_placed,
        closed=sum(order.closed for order in books.orders),
        findings=tuple(findings),
    )


def _judge(order: OrderBook) -> Iterator[Finding]:
    def lost(text: str) -> Finding:
        return Finding("lost", f"{order.key}: {text}")

    def doubled(text: str) -> Finding:
        return Finding("doubled", f"{order.key}: {text}")

    payments = Counter(order.payments)
    if not order.workflow_states:
        yield lost("there is no workflow")
        return
    if len(order.workflow_states) > 1:
        yield doubled(f"there are {len(order.workflow_states)} workflows")
    if len(order.payments) > 1:
        yield doubled(f"the provider has {len(order.payments)} payments under different keys")
    if order.shipments > 1:
        yield doubled(f"{order.shipments} parcels were shipped")
    if not order.closed:
        yield Finding("stuck", f"{order.key}: the workflow is {', '.join(order.workflow_states)}")
    elif order.completed:
        if not payments["CAPTURED"]:
            yield lost(f"shipped without being paid (payments: {order.payments})")
        if order.state != "SHIPPED" or not order.shipments:
            yield lost(f"paid without a parcel (the order is {order.state})")
        if order.reservation != "HELD":
            yield lost(f"shipped, and its stock is {order.reservation or 'not reserved'}")
    else:
        if order.shipments:
            yield doubled("shipped although its workflow failed")
        if payments["CAPTURED"]:
            yield lost("the money was not given back")
        if order.reservation == "HELD":
            yield lost("the stock was not released")
        if order.state != "CANCELLED":
            yield lost(f"failed, and the order is {order.state}")
        if _ignored_payment(order):
            yield lost(f"paid in time by a good card, and cancelled: {order.cancelled_because}")


def _ignored_payment(order: OrderBook) -> bool:
    paid = order.accepted_payment is not None and order.accepted_payment.card == GOOD_CARD
    return paid and order.cancelled_because not in CUSTOMERS_OWN_FAULT


def _judge_stock(books: Books) -> Iterator[Finding]:
    """Stock must have gone down once for each order that holds its goods, and not otherwise."""
    taken: Counter[str] = Counter()
    for order in books.orders:
        if order.reservation == "HELD":
            taken.update(order.goods)
    for sku, before in books.stock_before.items():
        now, expected = books.stock_now.get(sku), before - taken[sku]
        if now != expected:
            yield Finding("doubled", f"stock of {sku}: {before} before, {taken[sku]} held, so {expected}, not {now}")


def read_books(
    orders_by_token: Mapping[str, int],
    tokens: tuple[str, ...],
    paid_in_time: Mapping[int, CustomerPayment],
    stock_before: Mapping[str, int],
) -> Books:
    """Read every book once. The provider's payments are found by the reference it was given, not by our own links."""
    from django_app.models import WorkflowInstance
    from shop.models import Order, Payment, Product, Shipment

    workflows, payments = defaultdict(list), defaultdict(list)
    for key, state in WorkflowInstance.objects.filter(name="shop.fulfil_order").values_list("key", "state"):
        workflows[key].append(str(state))
    for reference, state in Payment.objects.values_list("reference", "state"):
        payments[reference].append(state)
    shipments = Counter(Shipment.objects.values_list("order_id", flat=True))
    orders = Order.objects.select_related("reservation").prefetch_related("lines__product")
    return Books(
        orders=tuple(
            OrderBook(
                key=order.key,
                workflow_states=tuple(workflows[order.key]),
                state=order.state,
                cancelled_because=order.cancelled_because,
                reservation=order.reservation.state if hasattr(order, "reservation") else "",
                payments=tuple(payments[order.key]),
                shipments=shipments[order.pk],
                goods={line.product.sku: line.quantity for line in order.lines.all()},
                accepted_payment=paid_in_time.get(order.pk),
            )
            for order in orders.order_by("pk")
        ),
        stock_before=stock_before,
        stock_now=dict(Product.objects.values_list("sku", "stock")),
        never_placed=sum(token not in orders_by_token for token in tokens),
    )
