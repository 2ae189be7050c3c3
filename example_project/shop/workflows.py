"""How an order becomes a parcel, or does not. Other workflows have modules of their own and are found from here."""

from __future__ import annotations

from dataclasses import dataclass

from durable_celery import (
    Signal,
    SignalTimeout,
    StepFailed,
    Workflow,
    WorkflowError,
    WorkflowFailed,
    set_status,
    workflow,
)

from . import deliveries, documents, prices, purchases  # noqa: F401 - registers their workflows and steps
from .conf import PAYMENT_WINDOW
from .models import Order
from .refusals import CardDeclined, NotForSale, SoldOut, Undeliverable
from .steps import (
    Parcel,
    cancel_order,
    capture,
    confirm,
    refund,
    release_stock,
    reserve_stock,
    ship,
    validate,
)


@dataclass(frozen=True)
class PaymentNotice:
    """The customer has entered a card; the money is still to be captured."""

    event_id: str
    card: str


payment = Signal("payment", PaymentNotice)

REASONS = {
    NotForSale: Order.Reason.NOT_FOR_SALE,
    SoldOut: Order.Reason.SOLD_OUT,
    CardDeclined: Order.Reason.CARD_DECLINED,
    Undeliverable: Order.Reason.UNDELIVERABLE,
}


@workflow(name="shop.fulfil_order", key=lambda order_id: f"order-{order_id}")
def fulfil_order(order_id: int) -> Workflow[Parcel]:
    """Reserve, wait for the payment, capture, ship. Stock and money go back if anything after them fails."""
    try:
        return (yield from _fulfil(order_id))
    except WorkflowError as error:
        reason = reason_of(error)
        set_status(reason)
        yield from cancel_order(order_id, reason)
        raise WorkflowFailed(f"order {order_id}: {reason}") from error


def _fulfil(order_id: int) -> Workflow[Parcel]:
    set_status("checking the order")
    quote = yield from validate(order_id)
    yield from reserve_stock(order_id).compensate_with(release_stock(order_id))

    set_status("waiting for the payment")
    notice = yield from payment.wait(timeout=PAYMENT_WINDOW)

    set_status("taking the payment")
    yield from capture(quote.reference, quote.total, notice.card).compensate_with(refund(quote.reference))
    yield from confirm(order_id)

    set_status("shipping")
    parcel = yield from ship(order_id)
    set_status(f"shipped as {parcel.tracking}")
    return parcel


def reason_of(error: WorkflowError) -> str:
    """What to tell the customer."""
    if isinstance(error, SignalTimeout):
        return str(Order.Reason.NOT_PAID)
    if isinstance(error, StepFailed):
        for refusal, reason in REASONS.items():
            if error.matches(refusal):
                return str(reason)
    return str(Order.Reason.OTHER)
