"""A purchase that the customer pays within half an hour, or cancels, and whose state can be asked for meanwhile."""

from __future__ import annotations

from dataclasses import dataclass

from durable_celery import (
    Signal,
    StepFailed,
    Workflow,
    WorkflowFailed,
    WorkflowHandle,
    query,
    race,
    set_status,
    sleep,
    workflow,
)

from .conf import PAYMENT_WINDOW
from .models import Order
from .refusals import CardDeclined, SoldOut
from .steps import cancel_order, capture, confirm, refund, release_stock, reserve_stock, ship, validate


@dataclass(frozen=True)
class Card:
    """What the customer pays with."""

    token: str


paid = Signal("paid", Card)
cancelled = Signal("cancelled")

REASONS = {SoldOut: Order.Reason.SOLD_OUT, CardDeclined: Order.Reason.CARD_DECLINED}


@workflow(name="shop.purchase", key=lambda order_id: f"purchase-{order_id}")
def purchase(order_id: int) -> Workflow[str]:
    """Reserve, wait for the payment or the customer's change of mind, capture, ship. Returns the tracking number."""
    status = "reserving the goods"
    query("status", lambda: status)
    try:
        quote = yield from validate(order_id)
        yield from reserve_stock(order_id).compensate_with(release_stock(order_id))

        status = "waiting for the payment"
        first = yield from race(paid=paid.wait(), cancelled=cancelled.wait(), late=sleep(PAYMENT_WINDOW))
        if first.name != "paid":
            reason = Order.Reason.BY_CUSTOMER if first.name == "cancelled" else Order.Reason.NOT_PAID
            raise WorkflowFailed(str(reason))

        status = "taking the payment"
        undo = refund(quote.reference)
        yield from capture(quote.reference, quote.total, first.value.token).compensate_with(undo)
        yield from confirm(order_id)

        status = "shipping"
        parcel = yield from ship(order_id)
    except (StepFailed, WorkflowFailed) as error:
        status = reason_of(error)
        set_status(status)
        yield from cancel_order(order_id, status)
        raise WorkflowFailed(f"order {order_id}: {status}") from error
    status = f"shipped as {parcel.tracking}"
    set_status(status)
    return parcel.tracking


def reason_of(error: StepFailed | WorkflowFailed) -> str:
    """What to tell the customer."""
    if isinstance(error, WorkflowFailed):
        return str(error)
    return next((str(reason) for kind, reason in REASONS.items() if error.matches(kind)), str(Order.Reason.OTHER))


def buy(order: Order) -> WorkflowHandle[str]:
    """Start the purchase, in the current transaction; a second call finds the first."""
    return purchase.using(subject=order).start(order.pk)


def pay(order: Order, card: str, event_id: str) -> None:
    """The customer has entered a card; again changes nothing. ``InstanceClosed`` if it is too late."""
    paid.send(purchase.get(key=f"purchase-{order.pk}"), Card(card), signal_id=event_id)


def cancel(order: Order) -> None:
    """The customer has changed their mind. Once the payment is being taken it has no effect."""
    cancelled.send(purchase.get(key=f"purchase-{order.pk}"), signal_id="cancelled")


def status_of(order: Order) -> str:
    """How far it is, in words."""
    return str(purchase.get(key=f"purchase-{order.pk}").query("status"))
