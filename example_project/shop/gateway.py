"""The payment provider and the carrier, played by tables of the shop's database.

Like the real ones they are slow, now and then down, and now and then down only after they did what was asked. The
provider therefore takes an idempotency key: asked again with a key it knows, it answers what it answered before.
"""

from __future__ import annotations

import time
import zlib
from decimal import Decimal

from django.db.models import F

from .conf import PARTNER_LATENCY
from .models import Payment
from .refusals import CardDeclined, Undeliverable

DECLINED_CARD = "tok_declined"
BAD_CONNECTIONS = 3


class GatewayDown(Exception):
    """No answer; whether the request was carried out is not known."""


def capture(reference: str, amount: Decimal, card: str, *, idempotency_key: str, attempt: int) -> str:
    """Take the money, at most once for one ``idempotency_key``; return the provider's name for the payment."""
    _travel()
    weather = _weather(reference, attempt)
    if weather == "request lost":
        raise GatewayDown(f"{reference}: connection refused")
    payment, _ = Payment.objects.get_or_create(
        idempotency_key=idempotency_key,
        defaults={
            "reference": reference,
            "amount": amount,
            "state": Payment.State.DECLINED if card == DECLINED_CARD else Payment.State.CAPTURED,
        },
    )
    Payment.objects.filter(pk=payment.pk).update(requests=F("requests") + 1)
    if weather == "answer lost":
        raise GatewayDown(f"{reference}: connection reset while waiting for the answer")
    if payment.state == Payment.State.DECLINED:
        raise CardDeclined(f"{reference}: the bank declined {amount}")
    return f"pay-{payment.pk}"


def refund(reference: str) -> int:
    """Give back whatever was captured for ``reference``; return how many payments that were, 0 the second time."""
    _travel()
    captured = Payment.objects.filter(reference=reference, state=Payment.State.CAPTURED)
    refunded: int = captured.update(state=Payment.State.REFUNDED)
    return refunded


def book_parcel(reference: str, address: str) -> str:
    """Have the carrier fetch a parcel; return its tracking number, the same for the same ``reference``."""
    _travel()
    if address.startswith("PO Box"):
        raise Undeliverable(f"{reference}: the carrier does not deliver to {address!r}")
    return f"PX{zlib.crc32(reference.encode()):010d}"


def _travel() -> None:
    time.sleep(PARTNER_LATENCY.total_seconds())


def _weather(reference: str, attempt: int) -> str:
    """Decided by reference and attempt alone, and fair after the third attempt at the latest."""
    if attempt > BAD_CONNECTIONS:
        return "fair"
    draw = zlib.crc32(f"{reference}/{attempt}".encode()) % 100
    return "request lost" if draw < 12 else "answer lost" if draw < 20 else "fair"
