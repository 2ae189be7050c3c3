"""Why an order cannot be served. A refusal is an answer, not a fault: trying again would give the same."""

from __future__ import annotations


class OrderRefused(Exception):
    """Root of the refusals; steps name it as not retryable."""


class NotForSale(OrderRefused):
    """A product was taken off sale between the basket and the checkout."""


class SoldOut(OrderRefused):
    """There is less in stock than was ordered."""


class CardDeclined(OrderRefused):
    """The bank said no."""


class Undeliverable(OrderRefused):
    """The carrier does not go there."""
