"""An order on account: the warehouse is asked to send it, and says when it has. Only then is the order confirmed."""

from __future__ import annotations

from dataclasses import dataclass

from django.core.mail import send_mail
from django.db import transaction

from durable_celery import Signal, SignalTimeout, Workflow, WorkflowFailed, WorkflowHandle, set_status, step, workflow

from .conf import SHIPPING_WINDOW
from .models import Confirmation, Order, PickRequest, Shipment
from .steps import cancel_order, confirm, release_stock, reserve_stock


@dataclass(frozen=True)
class Shipped:
    """The warehouse has handed the parcel to the carrier."""

    tracking: str


shipped = Signal("shipped", Shipped)


@step
def request_picking(order_id: int) -> None:
    """Put the order on the warehouse's list; one that was recalled before stays recalled."""
    PickRequest.objects.get_or_create(order_id=order_id)


@step
def recall_picking(order_id: int) -> None:
    """Take it off the list, for good."""
    PickRequest.objects.update_or_create(order_id=order_id, defaults={"state": PickRequest.State.RECALLED})


@step
def record_shipment(order_id: int, tracking: str) -> None:
    """The first number that the warehouse named stands."""
    with transaction.atomic():
        Shipment.objects.get_or_create(order_id=order_id, defaults={"tracking": tracking})
        Order.objects.filter(pk=order_id, state=Order.State.CONFIRMED).update(state=Order.State.SHIPPED)


@step
def send_confirmation(order_id: int) -> None:
    """Write to the customer. The row comes after the mail: a process killed between them writes once more."""
    if Confirmation.objects.filter(order_id=order_id).exists():
        return
    order = Order.objects.get(pk=order_id)
    send_mail(f"Your order {order_id}", f"It is on its way as {order.shipment.tracking}.", None, [order.email])
    Confirmation.objects.get_or_create(order_id=order_id)


@workflow(name="shop.deliver_order", key=lambda order_id: f"delivery-{order_id}")
def deliver_order(order_id: int) -> Workflow[str]:
    """Reserve, have it picked, wait for the warehouse, confirm. Returns the tracking number.

    If the warehouse says nothing in time, it is told to stop, the goods go back on the shelf, the order is cancelled.
    """
    set_status("reserving the goods")
    yield from reserve_stock(order_id).compensate_with(release_stock(order_id))
    yield from request_picking(order_id).compensate_with(recall_picking(order_id))

    set_status("waiting for the warehouse")
    try:
        parcel = yield from shipped.wait(timeout=SHIPPING_WINDOW)
    except SignalTimeout as silence:
        set_status("the warehouse did not answer")
        yield from cancel_order(order_id, str(Order.Reason.NOT_SHIPPED))
        raise WorkflowFailed(f"order {order_id}: {Order.Reason.NOT_SHIPPED}") from silence

    set_status(f"shipped as {parcel.tracking}")
    yield from confirm(order_id)
    yield from record_shipment(order_id, parcel.tracking)
    yield from send_confirmation(order_id)
    return parcel.tracking


def order_on_account(order: Order) -> WorkflowHandle[str]:
    """Start the delivery, in the current transaction; a second call finds the first."""
    return deliver_order.using(subject=order).start(order.pk)


def note_shipment(order_id: int, tracking: str, message_id: str) -> None:
    """What the warehouse's webhook calls; again changes nothing. ``InstanceClosed`` if it is too late."""
    handle = deliver_order.get(key=f"delivery-{order_id}")
    shipped.send(handle, Shipped(tracking), signal_id=message_id)
