"""What the shop does to the world, one step each.

A step may run more than once: the process can die after the work and before the result is stored. So each one here
first asks whether it has been done, and lets the database answer: by a unique row (``get_or_create``), by an update
that names the state it expects, or by an idempotency key at the partner.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal

from django.db import transaction
from django.db.models import F

from durable_celery import RetryPolicy, current_step, step

from . import gateway
from .models import Order, Product, Reservation, Shipment
from .refusals import NotForSale, OrderRefused, SoldOut

RETRY = RetryPolicy(non_retryable=(OrderRefused,))
PARTNER_RETRY = RetryPolicy(
    initial_interval=0.5, maximum_interval=30, maximum_attempts=10, non_retryable=(OrderRefused,)
)


@dataclass(frozen=True)
class Quote:
    reference: str
    total: Decimal


@dataclass(frozen=True)
class Receipt:
    payment: str
    amount: Decimal


@dataclass(frozen=True)
class Parcel:
    tracking: str


@step(retry=RETRY)
def validate(order_id: int) -> Quote:
    order = Order.objects.get(pk=order_id)
    gone = order.lines.filter(product__for_sale=False).values_list("product__sku", flat=True)
    if gone:
        raise NotForSale(f"{order.key}: no longer for sale: {', '.join(gone)}")
    return Quote(reference=order.key, total=order.total)


@step(retry=RETRY)
def reserve_stock(order_id: int) -> None:
    """Take the goods of the order out of stock. The unique reservation row makes a second run find the first."""
    with transaction.atomic():
        reservation, created = Reservation.objects.get_or_create(order_id=order_id)
        if not created:
            return
        for product_id, quantity in _goods(order_id):
            enough = Product.objects.filter(pk=product_id, stock__gte=quantity)
            if not enough.update(stock=F("stock") - quantity):
                raise SoldOut(f"{reservation.order.key}: less than {quantity} left of product {product_id}")


@step
def release_stock(order_id: int) -> None:
    """Put the goods back, once. Without a reservation it leaves a released one, so that a late one takes nothing."""
    with transaction.atomic():
        Reservation.objects.get_or_create(order_id=order_id, defaults={"state": Reservation.State.RELEASED})
        held = Reservation.objects.filter(order_id=order_id, state=Reservation.State.HELD)
        if not held.update(state=Reservation.State.RELEASED):
            return
        for product_id, quantity in _goods(order_id):
            Product.objects.filter(pk=product_id).update(stock=F("stock") + quantity)


@step(retry=PARTNER_RETRY, redact=("card",))
def capture(reference: str, amount: Decimal, card: str) -> Receipt:
    """Take the money. The key is the same on every attempt, so the provider takes it once."""
    attempt = current_step()
    payment = gateway.capture(reference, amount, card, idempotency_key=attempt.idempotency_key, attempt=attempt.attempt)
    return Receipt(payment=payment, amount=amount)


@step(retry=PARTNER_RETRY)
def refund(reference: str) -> None:
    gateway.refund(reference)


@step
def confirm(order_id: int) -> None:
    Order.objects.filter(pk=order_id, state=Order.State.PLACED).update(state=Order.State.CONFIRMED)


@step(retry=PARTNER_RETRY)
def ship(order_id: int) -> Parcel:
    order = Order.objects.get(pk=order_id)
    tracking = gateway.book_parcel(order.key, order.address)
    with transaction.atomic():
        shipment, _ = Shipment.objects.get_or_create(order=order, defaults={"tracking": tracking})
        Order.objects.filter(pk=order_id, state=Order.State.CONFIRMED).update(state=Order.State.SHIPPED)
    return Parcel(tracking=shipment.tracking)


@step
def cancel_order(order_id: int, reason: str) -> None:
    open_states = (Order.State.PLACED, Order.State.CONFIRMED)
    Order.objects.filter(pk=order_id, state__in=open_states).update(
        state=Order.State.CANCELLED, cancelled_because=reason
    )


def _goods(order_id: int) -> list[tuple[int, int]]:
    """Product and quantity of each line, always in the same order: two orders then never wait for each other."""
    lines = Order.objects.get(pk=order_id).lines.order_by("product_id")
    return list(lines.values_list("product_id", "quantity"))
