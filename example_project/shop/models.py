"""What the shop knows. The constraints here are what makes a step safe to run twice: one reservation and one shipment
per order, one payment per idempotency key, no stock below zero."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING

from django.db import models
from django.db.models import F, Q, Sum

if TYPE_CHECKING:  # relations from the other side, for type checkers without Django's plugin
    from django.db.models.fields.related_descriptors import RelatedManager


class Product(models.Model):
    sku = models.CharField(max_length=32, unique=True)
    name = models.CharField(max_length=100)
    price = models.DecimalField(max_digits=10, decimal_places=2)
    stock = models.IntegerField()
    for_sale = models.BooleanField(default=True)

    class Meta:
        ordering = ["name"]
        constraints = [models.CheckConstraint(condition=Q(stock__gte=0), name="shop_stock_not_negative")]

    def __str__(self) -> str:
        return self.name


class Order(models.Model):
    class State(models.TextChoices):
        PLACED = "PLACED"
        CONFIRMED = "CONFIRMED"
        SHIPPED = "SHIPPED"
        CANCELLED = "CANCELLED"

    class Reason(models.TextChoices):
        NOT_PAID = "not paid in time"
        NOT_SHIPPED = "not shipped in time"
        BY_CUSTOMER = "cancelled by the customer"
        CARD_DECLINED = "card declined"
        SOLD_OUT = "sold out"
        NOT_FOR_SALE = "no longer for sale"
        UNDELIVERABLE = "address not served"
        OTHER = "something went wrong"

    checkout_token = models.UUIDField(unique=True, help_text="A second submit of the form finds the order by it.")
    customer = models.CharField(max_length=100)
    email = models.EmailField()
    address = models.CharField(max_length=200)
    state = models.CharField(max_length=16, choices=State.choices, default=State.PLACED)
    cancelled_because = models.CharField(max_length=32, choices=Reason.choices, blank=True)
    placed_at = models.DateTimeField(auto_now_add=True)

    if TYPE_CHECKING:
        lines: RelatedManager[OrderLine]
        reservation: Reservation
        shipment: Shipment

    class Meta:
        ordering = ["-pk"]

    def __str__(self) -> str:
        return f"Order {self.pk}"

    @property
    def key(self) -> str:
        """The business key of this order's workflow."""
        return f"order-{self.pk}"

    @property
    def total(self) -> Decimal:
        amount = self.lines.aggregate(amount=Sum(F("quantity") * F("unit_price")))["amount"]
        return Decimal(amount or 0).quantize(Decimal("0.01"))


class OrderLine(models.Model):
    order = models.ForeignKey(Order, on_delete=models.CASCADE, related_name="lines")
    product = models.ForeignKey(Product, on_delete=models.PROTECT)
    quantity = models.PositiveIntegerField()
    unit_price = models.DecimalField(max_digits=10, decimal_places=2)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["order", "product"], name="shop_one_line_per_product"),
            models.CheckConstraint(condition=Q(quantity__gt=0), name="shop_quantity_positive"),
        ]

    def __str__(self) -> str:
        return f"{self.quantity} x {self.product}"


class Reservation(models.Model):
    """The goods of one order, taken out of stock; ``RELEASED`` for good once they are back."""

    class State(models.TextChoices):
        HELD = "HELD"
        RELEASED = "RELEASED"

    order = models.OneToOneField(Order, on_delete=models.CASCADE)
    state = models.CharField(max_length=16, choices=State.choices, default=State.HELD)

    def __str__(self) -> str:
        return f"{self.order.key} {self.state}"


class PaymentEvent(models.Model):
    """A message of the payment provider that we accepted; it may come again, also after the order is closed."""

    event_id = models.CharField(max_length=64, unique=True)
    order = models.ForeignKey(Order, on_delete=models.CASCADE, related_name="payment_events")
    received_at = models.DateTimeField(auto_now_add=True)

    def __str__(self) -> str:
        return self.event_id


class Payment(models.Model):
    """A row of the payment provider's own books (see ``gateway``); the shop reads it only in the admin."""

    class State(models.TextChoices):
        CAPTURED = "CAPTURED"
        DECLINED = "DECLINED"
        REFUNDED = "REFUNDED"

    idempotency_key = models.CharField(max_length=200, unique=True)
    reference = models.CharField(max_length=64, db_index=True)
    amount = models.DecimalField(max_digits=10, decimal_places=2)
    state = models.CharField(max_length=16, choices=State.choices)
    requests = models.PositiveIntegerField(default=0, help_text="How often this payment was asked for.")

    def __str__(self) -> str:
        return f"{self.reference} {self.state}"


class Shipment(models.Model):
    order = models.OneToOneField(Order, on_delete=models.CASCADE)
    tracking = models.CharField(max_length=32)
    shipped_at = models.DateTimeField(auto_now_add=True)

    def __str__(self) -> str:
        return self.tracking


class PickRequest(models.Model):
    """A line on the warehouse's list; ``RECALLED`` for good."""

    class State(models.TextChoices):
        ASKED = "ASKED"
        RECALLED = "RECALLED"

    order = models.OneToOneField(Order, on_delete=models.CASCADE)
    state = models.CharField(max_length=16, choices=State.choices, default=State.ASKED)
    asked_at = models.DateTimeField(auto_now_add=True)

    def __str__(self) -> str:
        return f"{self.order.key} {self.state}"


class Confirmation(models.Model):
    """The customer was told that the parcel is on its way."""

    order = models.OneToOneField(Order, on_delete=models.CASCADE)
    sent_at = models.DateTimeField(auto_now_add=True)

    def __str__(self) -> str:
        return f"{self.order.key} {self.sent_at:%Y-%m-%d %H:%M}"


class Document(models.Model):
    """Something that goes out only once somebody has agreed to it."""

    class State(models.TextChoices):
        SUBMITTED = "SUBMITTED"
        APPROVED = "APPROVED"
        REJECTED = "REJECTED"

    title = models.CharField(max_length=100)
    approver = models.EmailField(help_text="Is reminded every day until the document is approved.")
    state = models.CharField(max_length=16, choices=State.choices, default=State.SUBMITTED, editable=False)
    approved_by = models.CharField(max_length=150, blank=True, editable=False)
    submitted_at = models.DateTimeField(auto_now_add=True)

    if TYPE_CHECKING:
        reminders: RelatedManager[Reminder]

    class Meta:
        ordering = ["-pk"]

    def __str__(self) -> str:
        return self.title

    @property
    def key(self) -> str:
        """The business key of this document's approval."""
        return f"document-{self.pk}"


class Reminder(models.Model):
    """The approver was reminded of a document for the nth time."""

    document = models.ForeignKey(Document, on_delete=models.CASCADE, related_name="reminders")
    number = models.PositiveIntegerField()
    sent_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["document", "number"], name="shop_one_reminder_per_number")]

    def __str__(self) -> str:
        return f"{self.document.pk} no. {self.number}"


class PriceChange(models.Model):
    """One line for each price that an import has changed."""

    product = models.ForeignKey(Product, on_delete=models.CASCADE, related_name="price_changes")
    price_before = models.DecimalField(max_digits=10, decimal_places=2)
    price = models.DecimalField(max_digits=10, decimal_places=2)
    changed_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["-pk"]

    def __str__(self) -> str:
        return f"{self.product.pk}: {self.price_before} to {self.price}"
